"""Validation of built-in kinds beyond their schemas, as in Kubernetes."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator
from typing import Any

import msgspec

from gatehouse.apiserver.builtin.defaults import decoded
from gatehouse.apiserver.errors import Cause

Object = dict[str, Any]

KEY = re.compile(r"[-._a-zA-Z0-9]+")
MAX_DATA_BYTES = 1024 * 1024


def invalid(field: str, value: Any, why: str) -> Cause:
    """Build the cause for an invalid value."""
    shown = msgspec.json.encode(value).decode()
    return Cause("FieldValueInvalid", f"Invalid value: {shown}: {why}", field)


def required(field: str, why: str = "") -> Cause:
    """Build the cause for a missing value."""
    message = f"Required value: {why}" if why else "Required value"
    return Cause("FieldValueRequired", message, field)


def forbidden(field: str, why: str) -> Cause:
    """Build the cause for a field that may not be set or changed."""
    return Cause("FieldValueForbidden", f"Forbidden: {why}", field)


def _unchanged(field: str, new: Any, old: Any) -> Iterator[Cause]:
    if new != old:
        yield invalid(field, new, "field is immutable")


def _data_keys(obj: Object, field: str) -> Iterator[Cause]:
    for key in obj.get(field) or {}:
        if not KEY.fullmatch(key) or len(key) > 253 or key in (".", ".."):
            why = (
                "a valid config key must consist of alphanumeric characters, '-', '_' or '.' "
                "(e.g. 'key.name',  or 'KEY_NAME',  or 'key-name', regex used for validation is "
                "'[-._a-zA-Z0-9]+')"
            )
            yield invalid(f"{field}[{key}]", key, why)


def _check_immutable(obj: Object, old: Object | None, fields: tuple[str, ...]) -> Iterator[Cause]:
    """Yield the violations of immutability: neither the data nor `immutable` may change."""
    if old is None or not old.get("immutable"):
        return
    if not obj.get("immutable"):
        yield forbidden("immutable", "field is immutable when `immutable` is set")
    for field in fields:
        if (obj.get(field) or {}) != (old.get(field) or {}):
            yield forbidden(field, "field is immutable when `immutable` is set")


def config_map(obj: Object, old: Object | None) -> Iterator[Cause]:
    """Yield violations of keys, size and immutability."""
    yield from _data_keys(obj, "data")
    yield from _data_keys(obj, "binaryData")
    twice = set(obj.get("data") or ()) & set(obj.get("binaryData") or ())
    for key in sorted(twice):
        yield invalid(f"data[{key}]", key, "duplicate of key present in binaryData")
    size = sum(len(value.encode()) for value in (obj.get("data") or {}).values())
    if size > MAX_DATA_BYTES:
        yield Cause(
            "FieldValueTooLong", f"Too long: may not be more than {MAX_DATA_BYTES} bytes", ""
        )
    yield from _check_immutable(obj, old, ("data", "binaryData"))


_NEEDED = {
    "kubernetes.io/tls": ("tls.crt", "tls.key"),
    "kubernetes.io/dockerconfigjson": (".dockerconfigjson",),
    "kubernetes.io/ssh-auth": ("ssh-privatekey",),
}


def secret(obj: Object, old: Object | None) -> Iterator[Cause]:
    """Yield violations of keys, required data of the type, and immutability."""
    yield from _data_keys(obj, "data")
    data = obj.get("data") or {}
    for key in _NEEDED.get(obj.get("type", ""), ()):
        if key not in data:
            yield required(f"data[{key}]")
    for key, value in data.items():
        if decoded(value) is None:
            yield invalid(f"data[{key}]", value, "must be base64")
    if old is not None:
        yield from _unchanged("type", obj.get("type"), old.get("type"))
    yield from _check_immutable(obj, old, ("data",))


def service(obj: Object, old: Object | None) -> Iterator[Cause]:
    """Yield violations of ports, addresses and names."""
    spec = obj.get("spec") or {}
    kind, ports = spec.get("type", "ClusterIP"), spec.get("ports") or []
    if kind == "ExternalName":
        if not spec.get("externalName"):
            yield required("spec.externalName")
        if spec.get("clusterIP") not in (None, "", "None"):
            yield forbidden("spec.clusterIP", "may not be set for ExternalName services")
        return
    if not ports and spec.get("clusterIP") != "None":
        yield required("spec.ports")
    seen: set[Any] = set()
    for index, port in enumerate(ports):
        at = f"spec.ports[{index}]"
        name, target = port.get("name"), port.get("targetPort")
        if len(ports) > 1 and not name:
            yield required(f"{at}.name")
        if name and name in seen:
            yield Cause("FieldValueDuplicate", f'Duplicate value: "{name}"', f"{at}.name")
        seen.add(name)
        if isinstance(target, int) and not 1 <= target <= 65535:
            yield invalid(f"{at}.targetPort", target, "must be between 1 and 65535, inclusive")
    address = spec.get("clusterIP")
    if address not in (None, "", "None") and not _is_address(address):
        yield invalid("spec.clusterIP", address, "must be a valid IP address")
    before = ((old or {}).get("spec") or {}).get("clusterIP")
    if before and kind == (old or {})["spec"].get("type") and address != before:
        yield invalid("spec.clusterIP", address, "field is immutable")


def _is_address(text: Any) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def endpoint_slice(obj: Object, old: Object | None) -> Iterator[Cause]:
    """Yield violations of addresses, port names, and of the immutable address family."""
    family = obj.get("addressType")
    for index, endpoint in enumerate(obj.get("endpoints") or ()):
        for number, address in enumerate(endpoint.get("addresses") or ()):
            field = f"endpoints[{index}].addresses[{number}]"
            try:
                version = ipaddress.ip_address(address).version if family != "FQDN" else 0
            except ValueError:
                yield invalid(field, address, "must be a valid IP address")
                continue
            if version and f"IPv{version}" != family:
                yield invalid(field, address, f"must be an {family} address")
    names = [port.get("name", "") for port in obj.get("ports") or ()]
    for index, name in enumerate(names):
        if name in names[:index]:
            yield Cause("FieldValueDuplicate", f'Duplicate value: "{name}"', f"ports[{index}].name")
    if old is not None:
        yield from _unchanged("addressType", family, old.get("addressType"))


def _pod_spec(spec: Object, at: str) -> Iterator[Cause]:
    names: set[str] = set()
    volumes = {volume.get("name") for volume in spec.get("volumes") or ()}
    for kind in ("initContainers", "containers"):
        for index, container in enumerate(spec.get(kind) or ()):
            field = f"{at}.{kind}[{index}]"
            if not container.get("image"):
                yield required(f"{field}.image")
            if container.get("name") in names:
                message = f'Duplicate value: "{container["name"]}"'
                yield Cause("FieldValueDuplicate", message, f"{field}.name")
            names.add(container.get("name", ""))
            for number, mount in enumerate(container.get("volumeMounts") or ()):
                if mount.get("name") not in volumes:
                    message = f'Not found: "{mount.get("name")}"'
                    field_path = f"{field}.volumeMounts[{number}].name"
                    yield Cause("FieldValueNotFound", message, field_path)


def pod(obj: Object, old: Object | None) -> Iterator[Cause]:
    """Yield violations of containers, and of the spec, which is mostly immutable."""
    spec = obj.get("spec") or {}
    yield from _pod_spec(spec, "spec")
    if old is None:
        return
    before = old.get("spec") or {}
    if _immutable_spec(spec) != _immutable_spec(before):
        why = (
            "pod updates may not change fields other than "
            "`spec.containers[*].image`,`spec.initContainers[*].image`,"
            "`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing "
            "tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was "
            "previously negative)"
        )
        yield forbidden("spec", why)


_CHANGEABLE = ("activeDeadlineSeconds", "tolerations", "nodeName", "schedulingGates")


def _immutable_spec(spec: Object) -> Object:
    fixed = {key: value for key, value in spec.items() if key not in _CHANGEABLE}
    for kind in ("containers", "initContainers"):
        if kind in fixed:
            fixed[kind] = [{**container, "image": ""} for container in fixed[kind]]
    return fixed


def selects(selector: Object, labels: Object) -> bool:
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


def workload(obj: Object, old: Object | None) -> Iterator[Cause]:
    """Yield violations of the selector, which must match the template and is immutable."""
    spec = obj.get("spec") or {}
    selector, template = spec.get("selector") or {}, spec.get("template") or {}
    labels = (template.get("metadata") or {}).get("labels") or {}
    if not selector.get("matchLabels") and not selector.get("matchExpressions"):
        yield invalid("spec.selector", selector, "empty selector is invalid for deployment")
    elif not selects(selector, labels):
        why = "`selector` does not match template `labels`"
        yield invalid("spec.template.metadata.labels", labels, why)
    if "containers" in (template.get("spec") or {}):
        yield from _pod_spec(template["spec"], "spec.template.spec")
    if old is not None:
        yield from _unchanged("spec.selector", selector, (old.get("spec") or {}).get("selector"))


def autoscaler(obj: Object, _: Object | None) -> Iterator[Cause]:
    """Yield the violation of a maximum below the minimum."""
    spec = obj.get("spec") or {}
    least, most = spec.get("minReplicas", 1), spec.get("maxReplicas", 0)
    if most < least:
        why = "must be greater than or equal to `minReplicas`"
        yield invalid("spec.maxReplicas", most, why)
