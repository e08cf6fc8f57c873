"""Page of the fields of ``spec`` that each proxy serves, from the schemas of the bundled CRDs.

``served_fields.json`` names the fields that are not served on both proxies. A test changes each
field in objects that are served, and compares the effects with it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from nginx_gateway import SPECS

from gatehouse.apiserver_extension.extension import bundled
from gatehouse.compiler.frontends.gateway_api.extensions.extension_filters import EXTENSION_FILTERS

Schema = dict[str, Any]
FieldPath = tuple[str, ...]
"""Names of fields; ``[]`` for the items of a list and ``{}`` for the values of a map."""

GATEWAY_API_KINDS = (
    "GatewayClass", "Gateway", "ListenerSet", "HTTPRoute", "GRPCRoute", "TLSRoute", "TCPRoute",
    "UDPRoute", "BackendTLSPolicy", "ReferenceGrant", "XBackend", "XBackendTrafficPolicy", "XMesh",
    "XTelemetryPolicy",
)  # fmt: skip

_FIRST_KINDS = (
    *GATEWAY_API_KINDS, "InferencePool", "TrafficPolicy", "SecurityPolicy",
    "GatewayParameters", "NginxProxy", "ClientSettingsPolicy", "ProxySettingsPolicy",
    "UpstreamSettingsPolicy", "RateLimitPolicy", "ObservabilityPolicy", "AuthenticationFilter",
    "SnippetsFilter", "SnippetsPolicy", "WAFPolicy", "PayloadProcessor",
    "UpstreamCluster", "HostedAPIServer", "ExternalLoadBalancer",
)  # fmt: skip
"""Kinds at the start of the page."""

KINDS = tuple(dict.fromkeys((*_FIRST_KINDS, *SPECS, *EXTENSION_FILTERS)))
"""Kinds whose fields are tested."""

ENVOY_KINDS = {
    "UpstreamCluster": "kube-apiservers need Envoy",
}
"""Kinds that NGINX does not serve, with the reason. A condition of the object reports it."""

UNREAD_KINDS = {
    "RateLimitCondition": "written by the controller for programs that read those of KubeGateway",
}
"""Kinds of bundled CRDs that no component reads, with the reason."""

_TARGET_TYPE = re.compile(r"spec\.targetRefs?(\[\])?\.(group|kind)")
"""Fields whose values the schema of a policy of Gatehouse restricts to those of its targets."""

EXCEPTIONS = Path(__file__).with_name("served_fields.json")

HEAD = """The table has each field of `spec` of these kinds that has no fields below it. A test
changes each one in objects that are served, and compares configuration, objects that the
controller writes, and conditions. `kubectl explain` shows the description of each field.

| NGINX, Envoy | meaning |
| --- | --- |
| `served` | the configuration of the data plane, or an object beside it, follows the field |
| `reported` | a condition follows the field, or names it or a field above it |
| `none` | the field has no effect on a data plane; the note has the reason |
| `fixed` | no other value is valid without a change of another field |
"""


class FieldSupport(NamedTuple):
    """Effect of a field on each proxy, and the reason if it is not served."""

    nginx: str = "served"
    envoy: str = "served"
    note: str = ""


@cache
def schemas() -> dict[str, Schema]:
    """Return the schema of ``spec`` of each kind of the bundled CRDs."""
    wholes = whole_schemas().items()
    return {kind: spec for kind, whole in wholes if (spec := whole["properties"].get("spec"))}


@cache
def whole_schemas() -> dict[str, Schema]:
    """Return the schema of each kind of the bundled CRDs."""
    return {
        crd["spec"]["names"]["kind"]: version["schema"]["openAPIV3Schema"]
        for crd in bundled()
        for version in crd["spec"]["versions"]
        if version["storage"]
    }


def own_purpose(kind: str) -> list[str]:
    """Return lines with the first sentence of the description of a kind.

    The descriptions of Gateway API's kinds are not Gatehouse's: no lines for them.
    """
    if kind in GATEWAY_API_KINDS:
        return []
    text = " ".join(whole_schemas()[kind]["description"].split())
    return [f"{text.partition('. ')[0].removesuffix('.')}.", ""]


def leaves(schema: Schema, path: FieldPath = ()) -> Iterator[tuple[FieldPath, Schema]]:
    """Yield the path and the schema of each value that has no fields of its own."""
    if schema.get("properties"):
        for name, inner in schema["properties"].items():
            yield from leaves(inner, (*path, name))
    elif schema.get("type") == "array":
        yield from leaves(schema.get("items", {}), (*path, "[]"))
    elif isinstance(schema.get("additionalProperties"), dict):
        yield from leaves(schema["additionalProperties"], (*path, "{}"))
    else:
        yield path, schema


def shown(path: FieldPath) -> str:
    """Return a path as documents show it."""
    return re.sub(r"\.(\[\]|\{\})", r"\1", ".".join(("spec", *path)))


@cache
def exceptions() -> dict[tuple[str, str], FieldSupport]:
    """Return the fields that are not served on both proxies, by kind and path.

    An entry is about a field and all below it, except those with an entry of their own.
    """
    entries: list[list[str]] = json.loads(EXCEPTIONS.read_text("utf-8"))
    return {(kind, path): FieldSupport(*support) for kind, path, *support in entries}


def supports(kind: str) -> dict[str, FieldSupport]:
    """Return the effects of each field of a kind, by its path."""
    paths = [shown(path) for path, _ in leaves(schemas()[kind])]
    return {path: _support(kind, path) for path in paths}


def _support(kind: str, path: str) -> FieldSupport:
    above = [path[: end.start()] for end in re.finditer(r"(?=\.|\[\]|\{\})", path)]
    for prefix in (path, *reversed(above)):
        if (support := exceptions().get((kind, prefix))) is not None:
            return support
    if kind not in GATEWAY_API_KINDS and _TARGET_TYPE.fullmatch(path):
        return FieldSupport("fixed", "fixed")
    return FieldSupport(*(("none", "served", ENVOY_KINDS[kind]) if kind in ENVOY_KINDS else ()))


def page(note: str) -> str:
    """Return the page."""
    lines = ["# Served fields", "", note, "", HEAD]
    for kind in KINDS:
        lines += [f"## {kind}", "", *own_purpose(kind)]
        lines += ["| field | NGINX | Envoy | note |", "| --- | --- | --- | --- |"]
        for path, support in supports(kind).items():
            lines.append(f"| `{path}` | {' | '.join(support)} |".replace("|  |", "| |"))
        lines.append("")
    lines += ["## Kinds that are not read", "", "| kind | reason |", "| --- | --- |"]
    lines += [f"| {kind} | {reason} |" for kind, reason in UNREAD_KINDS.items()]
    return "\n".join((*lines, ""))
