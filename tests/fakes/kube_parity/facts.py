"""Facts of responses that are compared: status, reason, causes, headers and content."""

from __future__ import annotations

import json
import re
from typing import Any

import aiohttp
import yaml
from yarl import URL

from fakes import patience
from fakes.kube_parity.table import ParityRequest
from kube_base.types.objects import Object

Facts = dict[str, Any]
"""Facts by path, such as `status` or `content.spec.replicas`."""

HEADERS = ("Content-Type", "Warning", "Retry-After", "Allow")

_VOLATILE = re.compile(
    r"(.*\.)?metadata\.(uid|resourceVersion|creationTimestamp|deletionTimestamp|selfLink)"
    r"|(.*\.)?lastTransitionTime|.*\.nodePort|(.*\.)?metadata\.managedFields.*|metadata\.(continue|remaining.*)"
)
"""Fields that differ between two servers, or are compared in another form."""
_UNIQUE = (
    (re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"), "UID"),
    (re.compile(r"(?<=[Ss]ome[-_])[a-z0-9]{5}\b"), "SUFFIX"),
    (re.compile(r"10\.96\.\d+\.\d+"), "CLUSTER-IP"),
    (re.compile(r"(?<=X509SHA256=)[0-9a-f]{64}"), "DIGEST"),
    (re.compile(r"20\d\d-\d\d-\d\dT[0-9:.]+Z"), "TIME"),
)
_CONTROLLED = ("PodDisruptionBudget",)
"""Kinds whose status a controller may write between two requests."""
_CONTROLLER = "kube-controller-manager"


async def facts_of(session: aiohttp.ClientSession, request: ParityRequest) -> Facts:
    """Send a request and return the facts of its response."""
    async with patience.limit():
        while True:
            async with session.request(
                request.method,
                URL(request.path, encoded=True),
                data=request.body,
                headers=request.headers,
                skip_auto_headers=("Content-Type", "User-Agent"),
            ) as response:
                text = await response.text(errors="replace")
            if response.status != request.wait:
                break
            await patience.pause()
    facts: Facts = {"status": response.status}
    for name in HEADERS:
        values = response.headers.getall(name, ())
        if values:
            facts[name] = _replaced(", ".join(values))
    if text and not request.status_only and "protobuf" not in facts.get("Content-Type", ""):
        facts |= _content(text, facts.get("Content-Type", ""))
    port = response.url.port
    return {name: "PORT" if value == port else value for name, value in facts.items()}


def _content(text: str, content_type: str) -> Facts:
    try:
        value = json.loads(text) if "json" in content_type else yaml.safe_load(text)
    except (ValueError, yaml.YAMLError):
        return {}
    if not isinstance(value, dict) or "kind" not in value:
        return {}
    kind = value["kind"]
    head = {"kind": kind, "apiVersion": value.get("apiVersion")}
    if kind == "Status":
        return head | _status(value)
    if kind == "Table":
        return head | {
            "columns": [column["name"] for column in value["columnDefinitions"]],
            "rows": sorted(str(row["cells"][0]) for row in value["rows"]),
            "rows.object": sorted({row.get("object", {}).get("kind", "") for row in value["rows"]}),
        }
    if "items" in value:
        names = sorted(item["metadata"]["name"] for item in value["items"])
        kinds = {f"{item.get('apiVersion')} {item.get('kind')}" for item in value["items"]}
        return head | {"items": names, "items.kind": sorted(kinds)}
    return head | _object(value)


def _status(value: Object) -> Facts:
    details = value.get("details") or {}
    facts: Facts = {key: value[key] for key in ("reason", "code") if key in value}
    facts["has details"] = "details" in value
    facts |= {
        f"details.{key}": _replaced(str(details[key]))
        for key in ("name", "group", "kind", "retryAfterSeconds", "uid")
        if key in details
    }
    if details.get("causes"):
        causes = [(c.get("reason", ""), c.get("field", "")) for c in details["causes"]]
        facts["causes"] = sorted({f"{reason} {field}".strip() for reason, field in causes})
    return facts


def _object(value: Object) -> Facts:
    if value["kind"] in _CONTROLLED:
        value = {key: item for key, item in value.items() if key != "status"}
    facts = {f"content.{path}": item for path, item in _flat(value, "")}
    for entry in (value.get("metadata") or {}).get("managedFields") or ():
        if entry["manager"] == _CONTROLLER:
            continue
        name = " ".join(
            filter(None, (entry["manager"], entry["operation"], entry.get("subresource")))
        )
        owned = [path for path, _ in _flat(entry.get("fieldsV1") or {}, "")]
        facts[f"owned by {name}"] = sorted(owned)
    return facts


def _flat(value: Any, path: str) -> list[tuple[str, Any]]:
    """Return the leaves of a value with their paths, without volatile ones."""
    if _VOLATILE.fullmatch(path):
        return []
    if isinstance(value, dict) and value:
        inner = ((f"{path}.{key}" if path else key, item) for key, item in value.items())
    elif isinstance(value, list) and value:
        inner = ((f"{path}[{index}]", item) for index, item in enumerate(value))
    else:
        return [(path, _replaced(value) if isinstance(value, str) else value)]
    return [leaf for name, item in inner for leaf in _flat(item, name)]


def _replaced(text: str) -> str:
    for pattern, name in _UNIQUE:
        text = pattern.sub(name, text)
    return text
