"""What a schema cannot say: rules between fields, with the messages of the Gateway API's CRDs."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator
from typing import Any

from gatehouse.apiserver.errors import Cause

Object = dict[str, Any]

_FILTER_FIELDS = {
    "RequestHeaderModifier": "requestHeaderModifier",
    "ResponseHeaderModifier": "responseHeaderModifier",
    "RequestMirror": "requestMirror",
    "RequestRedirect": "requestRedirect",
    "URLRewrite": "urlRewrite",
    "ExtensionRef": "extensionRef",
    "CORS": "cors",
    "ExternalAuth": "externalAuth",
}


def _invalid(path: str, message: str) -> Cause:
    return Cause("FieldValueInvalid", f'Invalid value: "object": {message}', path)


_UNITS = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}


def seconds(text: str) -> float:
    """Give the seconds of a duration such as ``1h30m`` (GEP-2257); 0 for none."""
    return sum(int(n) * _UNITS[unit] for n, unit in re.findall(r"([0-9]+)(ms|h|m|s)", text))


def gateway(obj: Object) -> Iterator[Cause]:
    """Check a Gateway."""
    listeners = obj["spec"].get("listeners", [])
    seen: set[tuple[int, str, str]] = set()
    for index, listener in enumerate(listeners):
        path = f"spec.listeners[{index}]"
        identity = (listener["port"], listener["protocol"], listener.get("hostname", ""))
        if identity in seen:
            message = "Combination of port, protocol and hostname must be unique for each listener"
            yield _invalid("spec.listeners", message)
        seen.add(identity)
        protocol, tls = listener["protocol"], listener.get("tls")
        if protocol in ("HTTP", "TCP", "UDP") and tls is not None:
            message = "tls must not be specified for protocols ['HTTP', 'TCP', 'UDP']"
            yield _invalid(path, message)
        if protocol in ("TCP", "UDP") and listener.get("hostname"):
            yield _invalid(path, "hostname must not be specified for protocols ['TCP', 'UDP']")
        if protocol == "HTTPS" and tls is not None and tls.get("mode") != "Terminate":
            yield _invalid(path, "tls mode must be Terminate for protocol HTTPS")
        if (
            tls
            and tls["mode"] == "Terminate"
            and not (tls.get("certificateRefs") or tls.get("options"))
        ):
            message = "certificateRefs or options must be specified when mode is Terminate"
            yield _invalid(f"{path}.tls", message)


def http_route(obj: Object) -> Iterator[Cause]:
    """Check an HTTPRoute."""
    for index, rule in enumerate(obj["spec"].get("rules", [])):
        yield from _rule(rule, f"spec.rules[{index}]")


def _rule(rule: Object, path: str) -> Iterator[Cause]:
    filters = rule.get("filters", [])
    for index, match in enumerate(rule.get("matches", [])):
        yield from _path(match.get("path", {}), f"{path}.matches[{index}].path")
    yield from _filters(filters, path, rule)
    for index, backend in enumerate(rule.get("backendRefs", [])):
        place = f"{path}.backendRefs[{index}]"
        yield from _backend(backend, place)
        yield from _filters(backend.get("filters", []), place, rule)
    for index, item in enumerate(filters):
        mirrored = (item.get("requestMirror") or {}).get("backendRef")
        if mirrored:
            yield from _backend(mirrored, f"{path}.filters[{index}].requestMirror.backendRef")
    timeouts = rule.get("timeouts", {})
    whole, attempt = (seconds(timeouts.get(name, "")) for name in ("request", "backendRequest"))
    if whole and attempt and attempt > whole:
        message = "backendRequest timeout cannot be longer than request timeout"
        yield _invalid(f"{path}.timeouts", message)
    if rule.get("backendRefs") and any("requestRedirect" in item for item in filters):
        message = "RequestRedirect filter must not be used together with backendRefs"
        yield _invalid(path, message)


def _path(match: Object, path: str) -> Iterator[Cause]:
    value, kind = match.get("value", "/"), match.get("type", "PathPrefix")
    if kind not in ("Exact", "PathPrefix"):
        return
    if not value.startswith("/"):
        yield _invalid(
            path,
            "value must be an absolute path and start with '/' when type "
            "one of ['Exact', 'PathPrefix']",
        )
    for bad in ("//", "/./", "/../", "%2f", "%2F", "#"):
        if bad in value:
            yield _invalid(
                path, f"must not contain '{bad}' when type one of ['Exact', 'PathPrefix']"
            )
    for bad in ("/..", "/."):
        if value.endswith(bad):
            yield _invalid(
                path, f"must not end with '{bad}' when type one of ['Exact', 'PathPrefix']"
            )


def _backend(backend: Object, path: str) -> Iterator[Cause]:
    if (backend.get("group"), backend.get("kind")) == ("", "Service") and "port" not in backend:
        yield _invalid(path, "Must have port for Service reference")


def _filters(filters: list[Object], path: str, rule: Object) -> Iterator[Cause]:
    kinds = [item["type"] for item in filters]
    for index, item in enumerate(filters):
        place = f"{path}.filters[{index}]"
        for kind, field in _FILTER_FIELDS.items():
            if field in item and item["type"] != kind:
                message = f"filter.{field} must be nil if the filter.type is not {kind}"
                yield _invalid(place, message)
            if field not in item and item["type"] == kind:
                yield _invalid(place, f"filter.{field} must be specified for {kind} filter.type")
        for field in ("requestRedirect", "urlRewrite"):
            modifier = (item.get(field) or {}).get("path")
            if modifier:
                yield from _modifier(modifier, f"{place}.{field}.path", rule, path)
    if "RequestRedirect" in kinds and "URLRewrite" in kinds:
        message = (
            "May specify either httpRouteFilterRequestRedirect or "
            "httpRouteFilterRequestRewrite, but not both"
        )
        yield _invalid(f"{path}.filters", message)
    for kind in _FILTER_FIELDS:
        if kind not in ("RequestMirror", "ExtensionRef") and kinds.count(kind) > 1:
            yield _invalid(f"{path}.filters", f"{kind} filter cannot be repeated")


def _modifier(modifier: Object, path: str, rule: Object, rule_path: str) -> Iterator[Cause]:
    fields = {"ReplaceFullPath": "replaceFullPath", "ReplacePrefixMatch": "replacePrefixMatch"}
    for kind, field in fields.items():
        if modifier["type"] == kind and field not in modifier:
            yield _invalid(path, f"{field} must be specified when type is set to '{kind}'")
        if modifier["type"] != kind and field in modifier:
            yield _invalid(path, f"type must be '{kind}' when {field} is set")
    if modifier["type"] == "ReplacePrefixMatch":
        matches = rule.get("matches", [])
        single = len(matches) == 1 and matches[0].get("path", {}).get("type") == "PathPrefix"
        if not single:
            message = (
                "When using ReplacePrefixMatch, exactly one match of type PathPrefix must be given"
            )
            yield _invalid(rule_path, message)


def secret(obj: Object) -> Iterator[Cause]:
    """Check a Secret, and turn ``stringData`` into ``data``."""
    data = obj.setdefault("data", {})
    for key, text in obj.pop("stringData", {}).items():
        data[key] = base64.b64encode(text.encode()).decode()
    for key, value in data.items():
        try:
            base64.b64decode(value, validate=True)
        except ValueError:
            yield Cause("FieldValueInvalid", "Invalid value: not base64", f"data[{key}]")
    if obj.get("type") == "kubernetes.io/tls":
        for key in ("tls.crt", "tls.key"):
            if key not in data:
                yield Cause("FieldValueRequired", "Required value", f"data[{key}]")


def service(obj: Object) -> Iterator[Cause]:
    """Check a Service, and default its target ports."""
    spec = obj.setdefault("spec", {})
    ports = spec.get("ports", [])
    if not ports and spec.get("type") != "ExternalName" and spec.get("clusterIP") != "None":
        yield Cause("FieldValueRequired", "Required value", "spec.ports")
    seen: set[str] = set()
    for index, port in enumerate(ports):
        port.setdefault("targetPort", port["port"])
        name = port.get("name", "")
        if not name and len(ports) > 1:
            path = f"spec.ports[{index}].name"
            yield Cause("FieldValueRequired", "Required value", path)
        if name and name in seen:
            path = f"spec.ports[{index}].name"
            yield Cause("FieldValueDuplicate", f'Duplicate value: "{name}"', path)
        seen.add(name)
