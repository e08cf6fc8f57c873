"""Validation of built-in kinds beyond their schemas, as in Kubernetes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import msgspec

from kube_api_server.builtin.defaults import decode_base64
from kube_api_server.builtin.pod_specs import check_pod_spec
from kube_api_server.causes import (
    duplicate_cause,
    forbidden_cause,
    invalid_cause,
    required_cause,
    unsupported_cause,
)
from kube_api_server.errors import Cause
from kube_base.types import ip_addresses
from kube_base.types.objects import Object

KEY = re.compile(r"[-._a-zA-Z0-9]+")
IP_FAMILIES = ("IPv4", "IPv6")
"""IP families of Services."""
PORT_NAME = re.compile(r"(?=.{1,15}\Z)(?=.*[a-z])[a-z0-9]+(-[a-z0-9]+)*")
MAX_DATA_BYTES = 1024 * 1024


def _unchanged(field: str, new: Any, old: Any) -> Iterator[Cause]:
    if new != old:
        yield invalid_cause(field, new, "field is immutable")


def _data_keys(obj: Object, field: str) -> Iterator[Cause]:
    for key in obj.get(field) or {}:
        if not KEY.fullmatch(key) or len(key) > 253 or key in (".", ".."):
            why = (
                "a valid config key must consist of alphanumeric characters, '-', '_' or '.' "
                "(e.g. 'key.name',  or 'KEY_NAME',  or 'key-name', regex used for validation is "
                "'[-._a-zA-Z0-9]+')"
            )
            yield invalid_cause(f"{field}[{key}]", key, why)


def _check_immutable(obj: Object, old: Object | None, fields: tuple[str, ...]) -> Iterator[Cause]:
    """Yield the violations of immutability: neither the data nor `immutable` may change."""
    if old is None or not old.get("immutable"):
        return
    if not obj.get("immutable"):
        yield forbidden_cause("immutable", "field is immutable when `immutable` is set")
    for field in fields:
        if (obj.get(field) or {}) != (old.get(field) or {}):
            yield forbidden_cause(field, "field is immutable when `immutable` is set")


def config_map(obj: Object, old: Object | None) -> Iterator[Cause]:
    """Yield violations of keys, size and immutability."""
    yield from _data_keys(obj, "data")
    yield from _data_keys(obj, "binaryData")
    twice = set(obj.get("data") or ()) & set(obj.get("binaryData") or ())
    for key in sorted(twice):
        yield invalid_cause(f"data[{key}]", key, "duplicate of key present in binaryData")
    size = sum(len(value.encode()) for value in (obj.get("data") or {}).values())
    if size > MAX_DATA_BYTES:
        yield Cause(
            "FieldValueTooLong", f"Too long: may not be more than {MAX_DATA_BYTES} bytes", ""
        )
    yield from _check_immutable(obj, old, ("data", "binaryData"))


_NEEDED = {
    "kubernetes.io/tls": ("tls.crt", "tls.key"),
    "kubernetes.io/dockerconfigjson": (".dockerconfigjson",),
    "kubernetes.io/dockercfg": (".dockercfg",),
    "kubernetes.io/ssh-auth": ("ssh-privatekey",),
}


def check_secret(obj: Object, old: Object | None) -> Iterator[Cause]:
    """Yield violations of keys, required data of the type, and immutability."""
    yield from _data_keys(obj, "data")
    data = obj.get("data") or {}
    if old is None or data != (old.get("data") or {}):
        yield from _secret_of_type(obj, data)
    for key in _NEEDED.get(obj.get("type", ""), ()):
        if key not in data:
            yield required_cause(f"data[{key}]")
    for key, value in data.items():
        if decode_base64(value) is None:
            yield invalid_cause(f"data[{key}]", value, "must be base64")
    if old is not None:
        yield from _unchanged("type", obj.get("type"), old.get("type"))
    yield from _check_immutable(obj, old, ("data",))


def _secret_of_type(obj: Object, data: Object) -> Iterator[Cause]:
    """Yield violations of types that a list of keys does not describe."""
    match obj.get("type"):
        case "kubernetes.io/basic-auth" if not {"username", "password"}.intersection(data):
            yield required_cause("data[username]")
            yield required_cause("data[password]")
        case "kubernetes.io/service-account-token":
            name = "kubernetes.io/service-account.name"
            if not (obj["metadata"].get("annotations") or {}).get(name):
                yield required_cause(f"metadata.annotations[{name}]")
        case "kubernetes.io/dockerconfigjson" | "kubernetes.io/dockercfg" as kind:
            key = f".{kind.rpartition('/')[2]}"
            if key in data and not _is_json(decode_base64(data[key])):
                yield invalid_cause(f"data[{key}]", "<secret contents redacted>", "invalid JSON")


def _is_json(text: bytes | None) -> bool:
    try:
        msgspec.json.decode(text or b"", type=dict[str, Any])
    except (msgspec.DecodeError, RecursionError):
        return False
    return True


def check_service(obj: Object, old: Object | None) -> Iterator[Cause]:
    """Yield violations of ports, addresses and names."""
    spec = obj.get("spec") or {}
    kind, ports = spec.get("type", "ClusterIP"), spec.get("ports") or []
    if kind == "ExternalName":
        if not spec.get("externalName"):
            yield required_cause("spec.externalName")
        if spec.get("clusterIP") not in (None, "", "None"):
            yield forbidden_cause("spec.clusterIP", "may not be set for ExternalName services")
        return
    if not ports and spec.get("clusterIP") != "None":
        yield required_cause("spec.ports")
    yield from _service_ports(ports, kind)
    yield from _service_addresses(spec, kind)
    yield from _service_families(spec)
    before = ((old or {}).get("spec") or {}).get("clusterIP")
    if before and kind == (old or {})["spec"].get("type") and spec.get("clusterIP") != before:
        yield invalid_cause("spec.clusterIPs[0]", spec.get("clusterIP"), "field is immutable")


def _service_families(spec: Object) -> Iterator[Cause]:
    policy, families = spec.get("ipFamilyPolicy"), spec.get("ipFamilies") or []
    for index, family in enumerate(families):
        field = f"spec.ipFamilies[{index}]"
        if family not in IP_FAMILIES:
            yield unsupported_cause(field, family, IP_FAMILIES)
        elif family in families[:index]:
            yield duplicate_cause(field, family)
    if policy == "SingleStack" and len(set(families)) > 1:
        why = (
            "must be 'RequireDualStack' or 'PreferDualStack' when multiple IP families are "
            "specified"
        )
        yield invalid_cause("spec.ipFamilyPolicy", policy, why)


def _service_ports(ports: list[Object], kind: str) -> Iterator[Cause]:
    names: set[Any] = set()
    for index, port in enumerate(ports):
        at = f"spec.ports[{index}]"
        name, target = port.get("name"), port.get("targetPort")
        if len(ports) > 1 and not name:
            yield required_cause(f"{at}.name")
        if name and name in names:
            yield duplicate_cause(f"{at}.name", name)
        names.add(name)
        if isinstance(target, str) and not PORT_NAME.fullmatch(target):
            yield invalid_cause(f"{at}.targetPort", target, "must be an IANA service name")
        if kind == "ClusterIP" and port.get("nodePort"):
            why = "may not be used when `type` is 'ClusterIP'"
            yield forbidden_cause(f"{at}.nodePort", why)
        if isinstance(target, int) and not 1 <= target <= 65535:
            yield invalid_cause(
                f"{at}.targetPort", target, "must be between 1 and 65535, inclusive"
            )


def _service_addresses(spec: Object, kind: str) -> Iterator[Cause]:
    address = spec.get("clusterIP")
    if address not in (None, "", "None") and not _is_address(address):
        yield invalid_cause("spec.clusterIPs[0]", address, "must be a valid IP address")
    for index, external in enumerate(spec.get("externalIPs") or ()):
        if not _is_address(external) or ip_addresses.ip_address(external).is_loopback:
            why = "must be a valid IP address outside of the loopback range"
            yield invalid_cause(f"spec.externalIPs[{index}]", external, why)
    if kind == "ClusterIP" and spec.get("externalTrafficPolicy") and not spec.get("externalIPs"):
        why = "may only be set for externally-accessible services"
        yield invalid_cause("spec.externalTrafficPolicy", spec["externalTrafficPolicy"], why)


def _is_address(text: Any) -> bool:
    try:
        ip_addresses.ip_address(text)
    except ValueError:
        return False
    return True


def check_pod(obj: Object, old: Object | None) -> Iterator[Cause]:
    """Yield violations of containers, and of the spec, which is mostly immutable."""
    spec, before = obj.get("spec") or {}, (old or {}).get("spec")
    if spec != before:
        yield from check_pod_spec(spec, "spec")
    if before is None:
        return
    if _immutable_spec(spec) != _immutable_spec(before):
        why = (
            "pod updates may not change fields other than "
            "`spec.containers[*].image`,`spec.initContainers[*].image`,"
            "`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing "
            "tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was "
            "previously negative)"
        )
        yield forbidden_cause("spec", why)


_CHANGEABLE = ("activeDeadlineSeconds", "tolerations", "nodeName", "schedulingGates")


def _immutable_spec(spec: Object) -> Object:
    fixed = {key: value for key, value in spec.items() if key not in _CHANGEABLE}
    for kind in ("containers", "initContainers"):
        if kind in fixed:
            fixed[kind] = [{**container, "image": ""} for container in fixed[kind]]
    return fixed


def selects_labels(selector: Object, labels: Object) -> bool:
    """Return whether a label selector matches labels."""
    for key, value in (selector.get("matchLabels") or {}).items():
        if labels.get(key) != value:
            return False
    for expression in selector.get("matchExpressions") or ():
        key, values = expression.get("key"), expression.get("values") or []
        match expression.get("operator"):
            case "In" if labels.get(key) not in values:
                return False
            case "NotIn" if labels.get(key) in values:
                return False
            case "Exists" if key not in labels:
                return False
            case "DoesNotExist" if key in labels:
                return False
    return True


def check_workload(obj: Object, old: Object | None) -> Iterator[Cause]:
    """Yield violations of the selector, which must match the template and is immutable."""
    spec = obj.get("spec") or {}
    selector, template = spec.get("selector") or {}, spec.get("template") or {}
    labels = (template.get("metadata") or {}).get("labels") or {}
    before = (old or {}).get("spec") or {}
    if spec.get("selector") is None:
        # The schema reports that it is missing.
        why = "`selector` does not match template `labels`"
        yield invalid_cause("spec.template.metadata.labels", labels, why)
    elif not selector.get("matchLabels") and not selector.get("matchExpressions"):
        yield invalid_cause("spec.selector", selector, "empty selector is invalid for deployment")
    elif not selects_labels(selector, labels):
        why = "`selector` does not match template `labels`"
        yield invalid_cause("spec.template.metadata.labels", labels, why)
    if template != before.get("template"):
        yield from check_pod_spec(template.get("spec") or {}, "spec.template.spec")
        yield from _restart_policy(template.get("spec") or {})
    strategy = spec.get("strategy") or {}
    is_other = strategy.get("type") == "Recreate" and strategy.get("rollingUpdate")
    if is_other and strategy != before.get("strategy"):
        why = "may not be specified when strategy `type` is 'Recreate'"
        yield forbidden_cause("spec.strategy.rollingUpdate", why)
    if old is not None:
        yield from _unchanged("spec.selector", selector, before.get("selector"))


def _restart_policy(spec: Object) -> Iterator[Cause]:
    policy = spec.get("restartPolicy", "Always")
    if policy != "Always":
        yield unsupported_cause("spec.template.spec.restartPolicy", policy, ("Always",))


def check_autoscaler(obj: Object, _: Object | None) -> Iterator[Cause]:
    """Yield the violation of a maximum below the minimum."""
    spec = obj.get("spec") or {}
    least, most = spec.get("minReplicas", 1), spec.get("maxReplicas", 0)
    if most < least:
        why = "must be greater than or equal to `minReplicas`"
        yield invalid_cause("spec.maxReplicas", most, why)
