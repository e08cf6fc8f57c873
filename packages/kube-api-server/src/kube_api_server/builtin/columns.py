"""Columns of `kubectl get` for built-in kinds."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from kube_api_server.builtin import metric_targets
from kube_api_server.objects import timestamps
from kube_api_server.objects.served_resource import Column
from kube_base.types.objects import Object

_NONE = "<none>"


def at(path: str) -> Callable[[Object], Any]:
    """Return a function that reads a field; None if it is absent."""
    names = path.split(".")

    def read(obj: Object) -> Any:
        value: Any = obj
        for name in names:
            value = value.get(name) if isinstance(value, dict) else None
        return value

    return read


def _text(path: str, missing: str = _NONE) -> Callable[[Object], str]:
    read = at(path)
    return lambda obj: str(value) if (value := read(obj)) not in (None, "") else missing


def _number(path: str) -> Callable[[Object], int]:
    read = at(path)
    return lambda obj: int(read(obj) or 0)


def _size(*paths: str) -> Callable[[Object], int]:
    readers = [at(path) for path in paths]
    return lambda obj: sum(len(read(obj) or ()) for read in readers)


def _labels(labels: Any) -> str:
    return ",".join(f"{key}={value}" for key, value in sorted((labels or {}).items())) or _NONE


def _selector(obj: Object) -> str:
    return _selecting(obj.get("spec", {}).get("selector") or {})


def _pods(obj: Object) -> str:
    return _selecting(obj.get("spec", {}).get("podSelector") or {})


def _selecting(selector: Object) -> str:
    parts = [f"{key}={value}" for key, value in sorted((selector.get("matchLabels") or {}).items())]
    for expression in selector.get("matchExpressions") or ():
        key, operator = expression.get("key"), expression.get("operator", "")
        values = ",".join(expression.get("values") or ())
        match operator:
            case "Exists":
                parts.append(str(key))
            case "DoesNotExist":
                parts.append(f"!{key}")
            case _:
                parts.append(f"{key} {operator.lower()} ({values})")
    return ",".join(parts) or _NONE


def few(items: Iterable[str], maximum: int = 3) -> str:
    """Return the first items, and the number of the others."""
    texts = list(items)
    if len(texts) <= maximum:
        return ",".join(texts) or _NONE
    return f"{','.join(texts[:maximum])} + {len(texts) - maximum} more..."


def container_fields(field: str, template: str = "spec.template") -> Callable[[Object], str]:
    """Return a function that reads a field of all containers of a template."""
    read = at(f"{template}.spec.containers")
    return lambda obj: ",".join(str(c.get(field, "")) for c in read(obj) or ())


def _ports(obj: Object) -> str:
    parts = []
    for port in obj.get("spec", {}).get("ports") or ():
        node = f":{port['nodePort']}" if port.get("nodePort") else ""
        parts.append(f"{port.get('port')}{node}/{port.get('protocol', 'TCP')}")
    return ",".join(parts) or _NONE


def _external(obj: Object) -> str:
    spec = obj.get("spec", {})
    ingress = (obj.get("status") or {}).get("loadBalancer", {}).get("ingress") or ()
    addresses = [entry.get("ip") or entry.get("hostname") or "" for entry in ingress]
    addresses += spec.get("externalIPs") or ()
    if spec.get("type") == "ExternalName":
        return str(spec.get("externalName", _NONE))
    if spec.get("type") == "LoadBalancer" and not addresses:
        return "<pending>"
    return ",".join(addresses) or _NONE


def _endpoints(obj: Object) -> str:
    result: list[str] = []
    for subset in obj.get("subsets") or ():
        addresses = subset.get("addresses") or ()
        ports = subset.get("ports") or ()
        result += [f"{a['ip']}:{p['port']}" for p in ports for a in addresses]
        if not ports:
            result += [a["ip"] for a in addresses]
    return few(result)


def _slice_ports(obj: Object) -> str:
    ports = obj.get("ports")
    if not ports:
        return "<unset>"
    return few(str(port.get("port", "*")) for port in ports)


def _slice_endpoints(obj: Object) -> str:
    endpoints = obj.get("endpoints") or ()
    return few(e["addresses"][0] for e in endpoints) if endpoints else "<unset>"


def _pod_status(obj: Object) -> str:
    status = obj.get("status") or {}
    reason = status.get("reason") or status.get("phase", "Unknown")
    for container in status.get("containerStatuses") or ():
        state = container.get("state") or {}
        for kind in ("waiting", "terminated"):
            if (state.get(kind) or {}).get("reason"):
                reason = state[kind]["reason"]
    return "Terminating" if obj["metadata"].get("deletionTimestamp") else str(reason)


def _pod_ready(obj: Object) -> str:
    statuses = (obj.get("status") or {}).get("containerStatuses") or ()
    ready = sum(bool(status.get("ready")) for status in statuses)
    return f"{ready}/{len(obj.get('spec', {}).get('containers') or ())}"


def _restarts(obj: Object) -> str:
    statuses = (obj.get("status") or {}).get("containerStatuses") or ()
    return str(sum(int(status.get("restartCount") or 0) for status in statuses))


def _node_status(obj: Object) -> str:
    status = "Unknown"
    for condition in (obj.get("status") or {}).get("conditions") or ():
        if condition.get("type") == "Ready":
            status = "Ready" if condition.get("status") == "True" else "NotReady"
    disabled = obj.get("spec", {}).get("unschedulable")
    return f"{status},SchedulingDisabled" if disabled else status


def _node_roles(obj: Object) -> str:
    mark = "node-role.kubernetes.io/"
    labels = obj["metadata"].get("labels") or {}
    return ",".join(sorted(k[len(mark) :] for k in labels if k.startswith(mark))) or _NONE


def _node_address(kind: str) -> Callable[[Object], str]:
    def read(obj: Object) -> str:
        addresses = (obj.get("status") or {}).get("addresses") or ()
        return next((a["address"] for a in addresses if a.get("type") == kind), _NONE)

    return read


def _event_time(*paths: str) -> Callable[[Object], str]:
    readers = [at(path) for path in paths]
    return lambda obj: timestamps.age(next((t for read in readers if (t := read(obj))), None))


def _event_object(obj: Object) -> str:
    about = obj.get("involvedObject") or obj.get("regarding") or {}
    return f"{str(about.get('kind', '')).lower()}/{about.get('name', '')}"


def _event_source(obj: Object) -> str:
    source = obj.get("source") or obj.get("deprecatedSource") or {}
    name = source.get("component") or obj.get("reportingComponent") or ""
    return ", ".join(part for part in (name, source.get("host")) if part)


def _subjects(kind: str) -> Callable[[Object], str]:
    def read(obj: Object) -> str:
        subjects = [s for s in obj.get("subjects") or () if s.get("kind") == kind]
        if kind == "ServiceAccount":
            return ", ".join(f"{s.get('namespace', '')}/{s.get('name')}" for s in subjects)
        return ", ".join(str(s.get("name")) for s in subjects)

    return read


def _role(obj: Object) -> str:
    reference = obj.get("roleRef") or {}
    return f"{reference.get('kind')}/{reference.get('name')}"


def _scaled(obj: Object) -> str:
    target = obj.get("spec", {}).get("scaleTargetRef") or {}
    return f"{target.get('kind')}/{target.get('name')}"


def _deployment_ready(obj: Object) -> str:
    ready = (obj.get("status") or {}).get("readyReplicas") or 0
    return f"{ready}/{obj.get('spec', {}).get('replicas', 0)}"


NAME = Column("Name", at("metadata.name"), format="name")


def _quota_use(obj: Object) -> str:
    used, hard = at("status.used")(obj) or {}, at("status.hard")(obj) or {}
    return ", ".join(f"{name}: {used.get(name, 0)}/{hard[name]}" for name in sorted(hard))


AGE = Column("Age", lambda obj: timestamps.age(obj["metadata"].get("creationTimestamp")))
CREATED = Column("Created At", at("metadata.creationTimestamp"), "date")

CONTAINERS = (
    Column("Containers", container_fields("name"), wide=True),
    Column("Images", container_fields("image"), wide=True),
)
TEMPLATE = (
    *CONTAINERS,
    Column("Selector", _selector, wide=True),
)
_BOUND = (
    NAME,
    Column("Role", _role),
    AGE,
    Column("Users", _subjects("User"), wide=True),
    Column("Groups", _subjects("Group"), wide=True),
    Column("ServiceAccounts", _subjects("ServiceAccount"), wide=True),
)
_EVENT = (
    Column("Last Seen", _event_time("series.lastObservedTime", "lastTimestamp", "eventTime")),
    Column("Type", _text("type")),
    Column("Reason", _text("reason")),
    Column("Object", _event_object),
    Column("Subobject", lambda obj: at("involvedObject.fieldPath")(obj) or "", wide=True),
    Column("Source", _event_source, wide=True),
    Column("Message", lambda obj: str(obj.get("message") or obj.get("note") or "").strip()),
    Column("First Seen", _event_time("firstTimestamp", "eventTime"), wide=True),
    Column("Count", lambda obj: obj.get("count") or at("series.count")(obj) or 1, wide=True),
    Column("Name", at("metadata.name"), wide=True),
)

COLUMNS: dict[str, tuple[Column, ...]] = {
    "namespaces": (NAME, Column("Status", _text("status.phase", "")), AGE),
    "services": (
        NAME,
        Column("Type", _text("spec.type")),
        Column("Cluster-IP", _text("spec.clusterIP")),
        Column("External-IP", _external),
        Column("Port(s)", _ports),
        AGE,
        Column("Selector", lambda obj: _labels(obj.get("spec", {}).get("selector")), wide=True),
    ),
    "endpoints": (NAME, Column("Endpoints", _endpoints), AGE),
    "secrets": (NAME, Column("Type", _text("type")), Column("Data", _size("data")), AGE),
    "configmaps": (NAME, Column("Data", _size("data", "binaryData")), AGE),
    "serviceaccounts": (NAME, Column("Secrets", _size("secrets")), AGE),
    "pods": (
        NAME,
        Column("Ready", _pod_ready),
        Column("Status", _pod_status),
        Column("Restarts", _restarts),
        AGE,
        Column("IP", _text("status.podIP"), wide=True),
        Column("Node", _text("spec.nodeName"), wide=True),
        Column("Nominated Node", _text("status.nominatedNodeName"), wide=True),
        Column("Readiness Gates", lambda _: _NONE, wide=True),
    ),
    "nodes": (
        NAME,
        Column("Status", _node_status),
        Column("Roles", _node_roles),
        AGE,
        Column("Version", _text("status.nodeInfo.kubeletVersion", "")),
        Column("Internal-IP", _node_address("InternalIP"), wide=True),
        Column("External-IP", _node_address("ExternalIP"), wide=True),
        Column("OS-Image", _text("status.nodeInfo.osImage", "<unknown>"), wide=True),
        Column("Kernel-Version", _text("status.nodeInfo.kernelVersion", "<unknown>"), wide=True),
        Column(
            "Container-Runtime",
            _text("status.nodeInfo.containerRuntimeVersion", "<unknown>"),
            wide=True,
        ),
    ),
    "events": _EVENT,
    "deployments": (
        NAME,
        Column("Ready", _deployment_ready),
        Column("Up-to-date", _number("status.updatedReplicas")),
        Column("Available", _number("status.availableReplicas")),
        AGE,
        *TEMPLATE,
    ),
    "daemonsets": (
        NAME,
        Column("Desired", _number("status.desiredNumberScheduled"), "integer"),
        Column("Current", _number("status.currentNumberScheduled"), "integer"),
        Column("Ready", _number("status.numberReady"), "integer"),
        Column("Up-to-date", _number("status.updatedNumberScheduled"), "integer"),
        Column("Available", _number("status.numberAvailable"), "integer"),
        Column("Node Selector", lambda obj: _labels(at("spec.template.spec.nodeSelector")(obj))),
        AGE,
        *TEMPLATE,
    ),
    "replicasets": (
        NAME,
        Column("Desired", _number("spec.replicas"), "integer"),
        Column("Current", _number("status.replicas"), "integer"),
        Column("Ready", _number("status.readyReplicas"), "integer"),
        AGE,
        *TEMPLATE,
    ),
    "endpointslices": (
        NAME,
        Column("AddressType", _text("addressType")),
        Column("Ports", _slice_ports),
        Column("Endpoints", _slice_endpoints),
        AGE,
    ),
    "resourcequotas": (
        NAME,
        Column("Request", lambda obj: _quota_use(obj)),
        AGE,
    ),
    "leases": (NAME, Column("Holder", _text("spec.holderIdentity", "")), AGE),
    "horizontalpodautoscalers": (
        NAME,
        Column("Reference", _scaled),
        Column("Targets", metric_targets.targets),
        Column("MinPods", _text("spec.minReplicas", "<unset>")),
        Column("MaxPods", _number("spec.maxReplicas")),
        Column("Replicas", _number("status.currentReplicas")),
        AGE,
    ),
    "poddisruptionbudgets": (
        NAME,
        Column("Min Available", _text("spec.minAvailable", "N/A")),
        Column("Max Unavailable", _text("spec.maxUnavailable", "N/A")),
        Column("Allowed Disruptions", _number("status.disruptionsAllowed"), "integer"),
        AGE,
    ),
    "networkpolicies": (NAME, Column("Pod-Selector", _pods), AGE),
    "roles": (NAME, CREATED),
    "clusterroles": (NAME, CREATED),
    "rolebindings": _BOUND,
    "clusterrolebindings": _BOUND,
    "customresourcedefinitions": (NAME, CREATED),
    "validatingadmissionpolicies": (
        NAME,
        Column("Validations", _size("spec.validations"), "integer"),
        Column("ParamKind", _text("spec.paramKind.kind", "<unset>")),
        AGE,
    ),
    "validatingadmissionpolicybindings": (
        NAME,
        Column("PolicyName", _text("spec.policyName")),
        Column("ParamRef", _text("spec.paramRef.name", "<unset>")),
        AGE,
    ),
}
"""Columns by plural name."""
