"""Columns of `kubectl get` for the kinds of :mod:`stored_kinds`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kube_api_server.builtin.columns import AGE, CONTAINERS, NAME, at, few
from kube_api_server.objects.served_resource import Column
from kube_base.types.objects import Object

_NONE, _UNSET = "<none>", "<unset>"
_MODES = {
    "ReadWriteOnce": "RWO",
    "ReadOnlyMany": "ROX",
    "ReadWriteMany": "RWX",
    "ReadWriteOncePod": "RWOP",
}
"""Short names of access modes, in the order of their output."""


def _either(path: str, missing: str) -> Callable[[Object], str]:
    read = at(path)
    return lambda obj: str(read(obj) or missing)


def _count(path: str) -> Callable[[Object], int]:
    read = at(path)
    return lambda obj: len(read(obj) or ())


def _integer(path: str) -> Callable[[Object], int]:
    read = at(path)
    return lambda obj: int(read(obj) or 0)


def _of_template(field: str) -> Callable[[Object], str]:
    read = at("template.spec.containers")
    return lambda obj: ",".join(str(one.get(field, "")) for one in read(obj) or ())


def _pairs(path: str) -> Callable[[Object], str]:
    read = at(path)
    return lambda obj: (
        ",".join(f"{key}={value}" for key, value in sorted((read(obj) or {}).items())) or _NONE
    )


def _phase(obj: Object) -> str:
    if obj["metadata"].get("deletionTimestamp"):
        return "Terminating"
    return str(at("status.phase")(obj) or "")


def _bound(path: str, obj: Object) -> Any:
    """Return a field of the status of a claim that has a volume."""
    return at(path)(obj) if at("spec.volumeName")(obj) else None


def _modes(obj: Object) -> str:
    present = _bound("status.accessModes", obj) or ()
    return ",".join(short for mode, short in _MODES.items() if mode in present)


def _hosts(obj: Object) -> str:
    hosts = [rule["host"] for rule in at("spec.rules")(obj) or () if rule.get("host")]
    return few(hosts) if hosts else "*"


def _addresses(obj: Object) -> str:
    ingress = at("status.loadBalancer.ingress")(obj) or ()
    return ",".join(entry.get("ip") or entry.get("hostname") or "" for entry in ingress)


def _parameters(obj: Object) -> str:
    parameters = at("spec.parameters")(obj)
    if not parameters:
        return _NONE
    group = f".{parameters['apiGroup']}" if parameters.get("apiGroup") else ""
    return f"{parameters.get('kind')}{group}/{parameters.get('name')}"


def _approval(obj: Object) -> str:
    """Return the state of a request for a certificate."""
    kinds = [one.get("type") for one in at("status.conditions")(obj) or ()]
    states = [kind for kind in ("Approved", "Denied", "Failed") if kind in kinds] or ["Pending"]
    if at("status.certificate")(obj):
        states.append("Issued")
    return ",".join(states)


def _state_of_claim(obj: Object) -> str:
    """Return the states of a claim for devices."""
    is_deleted = bool(obj["metadata"].get("deletionTimestamp"))
    states = ["deleted"] if is_deleted else []
    if at("status.allocation")(obj) is not None:
        states += ["allocated", *(["reserved"] if at("status.reservedFor")(obj) else [])]
    elif not is_deleted:
        states.append("pending")
    return ",".join(states)


def _condition(kind: str, missing: str) -> Callable[[Object], str]:
    """Return a function that reads the status of a condition."""

    def read(obj: Object) -> str:
        for condition in at("status.conditions")(obj) or ():
            if condition.get("type") == kind:
                return str(condition.get("status"))
        return missing

    return read


_WEBHOOKS = (NAME, Column("Webhooks", _count("webhooks"), "integer"), AGE)

_LIMITED = "spec.limited"
_QUEUING = f"{_LIMITED}.limitResponse.queuing"


def _or_none(path: str) -> Callable[[Object], Any]:
    read = at(path)
    return lambda obj: value if (value := read(obj)) is not None else _NONE


STORED_COLUMNS: dict[str, tuple[Column, ...]] = {
    "podtemplates": (
        NAME,
        Column("Containers", _of_template("name")),
        Column("Images", _of_template("image")),
        Column("Pod Labels", _pairs("template.metadata.labels")),
    ),
    "replicationcontrollers": (
        NAME,
        Column("Desired", _integer("spec.replicas"), "integer"),
        Column("Current", _integer("status.replicas"), "integer"),
        Column("Ready", _integer("status.readyReplicas"), "integer"),
        AGE,
        *CONTAINERS,
        Column("Selector", _pairs("spec.selector"), wide=True),
    ),
    "persistentvolumeclaims": (
        NAME,
        Column("Status", _phase),
        Column("Volume", _either("spec.volumeName", "")),
        Column(
            "Capacity", lambda obj: str((_bound("status.capacity", obj) or {}).get("storage", ""))
        ),
        Column("Access Modes", _modes),
        Column("StorageClass", _either("spec.storageClassName", "")),
        Column("VolumeAttributesClass", _either("spec.volumeAttributesClassName", _UNSET)),
        AGE,
        Column("VolumeMode", _either("spec.volumeMode", _UNSET), wide=True),
    ),
    "flowschemas": (
        NAME,
        Column("PriorityLevel", _either("spec.priorityLevelConfiguration.name", "")),
        Column("MatchingPrecedence", _integer("spec.matchingPrecedence")),
        Column("DistinguisherMethod", _either("spec.distinguisherMethod.type", _NONE)),
        AGE,
        Column("MissingPL", _condition("Dangling", "?")),
    ),
    "prioritylevelconfigurations": (
        NAME,
        Column("Type", _either("spec.type", "")),
        Column("NominalConcurrencyShares", _or_none(f"{_LIMITED}.nominalConcurrencyShares")),
        Column("Queues", _or_none(f"{_QUEUING}.queues")),
        Column("HandSize", _or_none(f"{_QUEUING}.handSize")),
        Column("QueueLengthLimit", _or_none(f"{_QUEUING}.queueLengthLimit")),
        AGE,
    ),
    "deviceclasses": (NAME, AGE),
    "resourceclaims": (NAME, Column("State", _state_of_claim), AGE),
    "resourceclaimtemplates": (NAME, AGE),
    "resourceslices": (
        NAME,
        Column("Node", _either("spec.nodeName", "")),
        Column("Driver", _either("spec.driver", "")),
        Column("Pool", _either("spec.pool.name", "")),
        AGE,
    ),
    "ingresses": (
        NAME,
        Column("Class", _either("spec.ingressClassName", _NONE)),
        Column("Hosts", _hosts),
        Column("Address", _addresses),
        Column("Ports", lambda obj: "80, 443" if at("spec.tls")(obj) else "80"),
        AGE,
    ),
    "ingressclasses": (
        NAME,
        Column("Controller", _either("spec.controller", "")),
        Column("Parameters", _parameters),
        AGE,
    ),
    "runtimeclasses": (NAME, Column("Handler", _either("handler", "")), AGE),
    "priorityclasses": (
        NAME,
        Column("Value", _integer("value"), "integer"),
        Column("Global-Default", lambda obj: bool(obj.get("globalDefault")), "boolean"),
        AGE,
        Column("PreemptionPolicy", _either("preemptionPolicy", ""), wide=True),
    ),
    "csinodes": (NAME, Column("Drivers", _count("spec.drivers"), "integer"), AGE),
    "storageclasses": (
        NAME,
        Column("Provisioner", _either("provisioner", "")),
        Column("ReclaimPolicy", _either("reclaimPolicy", "Delete")),
        Column("VolumeBindingMode", _either("volumeBindingMode", "Immediate")),
        Column("AllowVolumeExpansion", lambda obj: bool(obj.get("allowVolumeExpansion"))),
        AGE,
    ),
    "certificatesigningrequests": (
        NAME,
        AGE,
        Column("SignerName", _either("spec.signerName", _NONE)),
        Column("Requestor", _either("spec.username", "")),
        Column("Condition", _approval),
    ),
    "clustertrustbundles": (NAME, Column("SignerName", _either("spec.signerName", _NONE))),
    "validatingwebhookconfigurations": _WEBHOOKS,
    "mutatingwebhookconfigurations": _WEBHOOKS,
    "apiservices": (
        NAME,
        Column("Service", lambda _: "Local"),
        Column("Available", _condition("Available", "Unknown")),
        AGE,
    ),
}
"""Columns by plural name."""
