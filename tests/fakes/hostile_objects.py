"""Objects that a hostile tenant writes: those of the golden cases, with values changed at random.

Each tenant has a namespace and the objects of one golden case there, whose routes attach to a
Gateway that all tenants share. One to three values of these objects are replaced by hostile ones,
removed, repeated, or added as the schema of the kind describes. Only objects that the API server
admits are kept, so that every object is one that a tenant can have.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Collection, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import yaml

from fakes import admission
from fakes.kinds import resource_of
from gatehouse.apiserver_extension.extension import bundled

Object = dict[str, Any]
Place = tuple[Any, Any]
"""A dictionary or list, and the key of one of its values."""

INJECTED = "gh_injected"
"""The word that no structure of any output may have."""
CASES = sorted((Path(__file__).parents[1] / "golden").glob("*/input.yaml"))
INSTALLATION = {
    "GatewayClass", "Gateway", "Namespace", "NginxProxy", "GatewayParameters", "UpstreamCluster",
    "HostedAPIServer", "SnippetsFilter", "SnippetsPolicy",
}  # fmt: skip
"""Kinds that the tenants of a shared Gateway do not write."""
CLUSTER_KINDS = {"GatewayClass", "Namespace", "UpstreamCluster"}
SHARED = {"group": "gateway.networking.k8s.io", "kind": "Gateway", "name": "gw", "namespace": "gh"}
ATTEMPTS = 10
"""Maximum number of changes of an object until the API server admits it."""
FIXED = {"apiVersion", "kind", "metadata", "parentRefs"}
"""Values that stay, because an object is otherwise another one, or not a part of the Gateway."""

TEXTS = (
    f'"; {INJECTED} on; #', f"'; {INJECTED} on; #", f"; {INJECTED} on;", f"}} {INJECTED} {{ ",
    f"\n{INJECTED} on;\n", f"\r\nX-{INJECTED}: 1", f"a\\\n{INJECTED}", f"\\\"; {INJECTED} on;",
    f"$host{INJECTED}", "${host}", "$gh_1", "$", "$$", "\\", "\\\\", '"', "'", "#", "{", "}", ";",
    "\x00", "\x7f", "\u2028", "\u202e", "\ufeff", "\ufffe", "é", "\uff41.example", "\U0001f600",
    "%REQ(authorization)%", "%", "%%", "%20", "%00", "%0d%0a", "{{ x }}", "<script>", "*", "*.",
    "*.example", ".", "..", "../../etc/passwd", "/etc/passwd", "//", "/", "~", "~*", "^~", "@x",
    "=", "!", "-", "_", ":", "::1", "[::1]", "127.0.0.1", "169.254.169.254", "unix:/run/x.sock",
    "localhost", "default_server", "default", "hostnames", "volatile", "include", "off", "on",
    "true", "null", "0", "-1", "1e999", "0x10", "99999999999999999999", "1g", "100g", "0s", "0ms",
    "2562047h", "1000000h", "x" * 300, "x" * 10_000, "(", "[", "(a+)+$", "(?x)a#", "/[[:foo:]]",
    "/\\u0041", "/x{65536}", "(?P<x>a)(?P<x>b)", "\\C", "(?<=a+)b", "a{1000}{1000}", "\\Q", "(?R)",
    ":authority", ":path", "Host", "content-length", "Transfer-Encoding", "x-envoy-upstream-rq-per",
    "x_y", "X-A\n", " ", "\t", "a b", "kubernetes.io", "$gh_x", "http://[::1]:80/", "javascript:0",
)  # fmt: skip
STRUCTURES = (
    *(text for text in TEXTS if INJECTED in text),
    *(f"%REQ({INJECTED})%", f"%{INJECTED}%", f"${INJECTED}", f"\\1{INJECTED}", f"]]{INJECTED}[["),
)
"""Texts that add to the structure of an output in which they are not quoted."""
NUMBERS = (-(2**63), -1, 0, 1, 2, 65_535, 65_536, 2**31 - 1, 2**31, 2**32, 2**53, 2**63 - 1)


@cache
def _whole_cases() -> list[list[Object]]:
    """Return the objects of each golden case."""
    return [
        [raw for raw in yaml.load_all(path.read_text(encoding="utf-8"), yaml.CSafeLoader) if raw]
        for path in CASES
    ]


@cache
def _cases() -> list[list[Object]]:
    """Return the tenants' objects of each golden case that has any."""
    tenants = [[raw for raw in case if raw["kind"] not in INSTALLATION] for case in _whole_cases()]
    return [case for case in tenants if any("parentRefs" in raw.get("spec", {}) for raw in case)]


@cache
def _schemas() -> dict[str, Object]:
    return {
        crd["spec"]["names"]["kind"]: version["schema"]["openAPIV3Schema"]
        for crd in bundled()
        for version in crd["spec"]["versions"]
        if version["storage"]
    }


class Tenant(msgspec.Struct, frozen=True):
    """The admitted objects of a namespace."""

    objects: list[Object]
    hostile: dict[str, Object]
    """Those with hostile values, by kind and name: what their specs differ in."""


def tenant(number: int, seed: int) -> Tenant:
    """Return the objects of a tenant, of which up to three are hostile."""
    choice = random.Random(f"{seed}/{number}")
    case = copy.deepcopy(choice.choice(_cases()))
    for raw in case:
        _move(raw, number)
    return _attacking(case, choice)


def _attacking(case: list[Object], choice: random.Random, first: int | None = None) -> Tenant:
    """Change up to three objects of a case, each until the API server admits it.

    ``first``: the position of an object that is one of them.
    """
    hostile: dict[str, Object] = {}
    positions = choice.sample(range(len(case)), min(choice.choice((1, 2, 3)), len(case)))
    for position in dict.fromkeys((*positions, *(() if first is None else (first,)))):
        for _ in range(ATTEMPTS):
            changed = change(case[position], choice)
            if is_admitted(copy.deepcopy(changed)):
                hostile[f"{changed['kind']} {changed['metadata']['name']}"] = {
                    key: value for key, value in changed.items() if value != case[position].get(key)
                }
                case[position] = changed
                break
    return Tenant([raw for raw in case if is_admitted(raw)], hostile)


def change(raw: Object, choice: random.Random) -> Object:
    """Return a copy of an object with one to three values changed."""
    result = copy.deepcopy(raw)
    schema = _schemas().get(raw["kind"], {})
    for _ in range(choice.choice((1, 1, 2, 3))):
        places = list(_places(result, schema, top=True))
        if not places:
            break
        (holder, key), described = choice.choice(places)
        _change(holder, key, described, choice)
    return result


def _change(holder: Any, key: Any, schema: Object, choice: random.Random) -> None:
    value = holder[key]
    operation = choice.random()
    if isinstance(value, dict) and schema.get("properties"):
        name = choice.choice(sorted(schema["properties"]))
        value[name] = _value(schema["properties"][name], choice)
    elif isinstance(value, list) and value and operation < 0.5:
        value *= choice.choice((2, 2, 17))
    elif isinstance(value, list) and schema.get("items"):
        value.append(_value(schema["items"], choice))
    elif operation < 0.1 and isinstance(holder, dict):
        del holder[key]
    elif isinstance(value, bool):
        holder[key] = not value
    elif isinstance(value, int):
        holder[key] = choice.choice(NUMBERS)
    elif isinstance(value, str):
        text = choice.choice(TEXTS)
        holder[key] = choice.choice((text, text, value + text, text + value))
    else:
        holder[key] = _value(schema, choice)


def _value(schema: Object, choice: random.Random, depth: int = 0) -> Any:
    """Return a value of a schema: its required fields and some others, with hostile leaves."""
    if "enum" in schema:
        return choice.choice(schema["enum"])
    if "default" in schema and choice.random() < 0.3:
        return copy.deepcopy(schema["default"])
    match schema.get("type"):
        case "object":
            properties = schema.get("properties", {})
            names = [
                name
                for name in properties
                if name in schema.get("required", ()) or (depth < 4 and choice.random() < 0.3)
            ]
            return {name: _value(properties[name], choice, depth + 1) for name in names}
        case "array":
            count = max(schema.get("minItems", 0), choice.choice((0, 1, 1, 3)))
            return [_value(schema.get("items", {}), choice, depth + 1) for _ in range(count)]
        case "integer" | "number":
            lowest, highest = schema.get("minimum", -(2**31)), schema.get("maximum", 2**31 - 1)
            return choice.choice((lowest, highest, *NUMBERS))
        case "boolean":
            return choice.random() < 0.5
        case _:
            return choice.choice((*TEXTS, "a", "a.example", "/a", "10s", "1m", "X-A", "s"))


def _places(value: Any, schema: Object, *, top: bool = False) -> Iterator[tuple[Place, Object]]:
    """Yield every value of an object that may change, with its schema."""
    if isinstance(value, dict):
        for key, item in value.items():
            if key in FIXED or (top and key == "status"):
                continue
            inner = schema.get("properties", {}).get(key) or schema.get("additionalProperties")
            described = inner if isinstance(inner, dict) else {}
            yield (value, key), described
            yield from _places(item, described)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            described = schema.get("items", {})
            yield (value, index), described
            yield from _places(item, described)


def _move(raw: Object, number: int) -> None:
    """Move an object to the namespace of a tenant, and its routes to the shared Gateway."""
    metadata = raw["metadata"]
    metadata["namespace"] = f"{metadata.get('namespace', 'ns')}-{number}"
    spec = raw.get("spec", {})
    if "parentRefs" in spec:
        spec["parentRefs"] = [SHARED]
    if raw["kind"] in ("HTTPRoute", "GRPCRoute", "TLSRoute"):
        own = spec.get("hostnames") or ["x.example"]
        spec["hostnames"] = [f"{name.replace('*', 'w')}.{number}.example" for name in own]


def is_admitted(raw: Object) -> bool:
    """Return whether the API server admits an object, which is completed in place."""
    resource = resource_of(raw["kind"])
    try:
        admission.admit(resource, raw)
    except (AssertionError, AttributeError, KeyError, TypeError, ValueError):
        # Defaults of a value of another type fail, which the API server reports as its type.
        return False
    raw["metadata"].setdefault("generation", 1)
    raw["metadata"].setdefault("creationTimestamp", admission.NOW)
    return True


def injecting_tenant(number: int, seed: int) -> Tenant:
    """Return the objects of a tenant, of which one has a text of `STRUCTURES` where any value may
    have it.
    """
    choice = random.Random(f"injecting/{seed}/{number}")
    for _ in range(100 * ATTEMPTS):
        case = copy.deepcopy(choice.choice(_cases()))
        for raw in case:
            _move(raw, number)
        position = choice.randrange(len(case))
        changed = copy.deepcopy(case[position])
        places = [
            place
            for place, _ in _places(changed, {}, top=True)
            if isinstance(place[0][place[1]], str)
        ]
        if not places:
            continue
        holder, key = choice.choice(places)
        text = choice.choice(STRUCTURES)
        holder[key] = choice.choice((text, holder[key] + text, text + holder[key]))
        if is_admitted(copy.deepcopy(changed)):
            hostile = {f"{changed['kind']} {changed['metadata']['name']}": {str(key): holder[key]}}
            case[position] = changed
            return Tenant([raw for raw in case if is_admitted(raw)], hostile)
    raise AssertionError("the API server admits no such object")


def owner(number: int, seed: int, kinds: Collection[str] = ()) -> Tenant:
    """Return all objects of a golden case, of which up to three are hostile.

    The tenant owns the Gateway, its parameters and the clusters that it serves. ``kinds``: the case
    has an object of such a kind, and one of these is hostile if the API server admits it.
    """
    choice = random.Random(f"owner/{seed}/{number}")
    cases = [case for case in _whole_cases() if not kinds or _positions(case, kinds)]
    case = copy.deepcopy(choice.choice(cases))
    for raw in case:
        if raw["kind"] not in CLUSTER_KINDS:
            raw["metadata"].setdefault("namespace", "ns")
    first = choice.choice(_positions(case, kinds)) if kinds else None
    return _attacking(case, choice, first)


def _positions(case: list[Object], kinds: Collection[str]) -> list[int]:
    return [position for position, raw in enumerate(case) if raw["kind"] in kinds]
