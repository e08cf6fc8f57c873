"""Effects of single fields of objects: each leaf of a schema, changed in objects that are served.

The objects are those of ``field_world.yaml`` and of the golden cases. A change of a leaf is
*served* if the configuration of a data plane differs then, and *reported* if only a status does.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any, Literal

import yaml
from served_fields import FieldPath, leaves, schemas, shown

from fakes import admission
from fakes.compiled_objects import CAPABLE_NGINX, engine_with, merged_statuses
from gatehouse.apis.gateway import NGINX_CONTROLLER
from gatehouse.compiler.backends import envoy, nginx
from gatehouse.compiler.frontends import combined, gateway_api
from gatehouse.incremental.query import Key

Object = dict[str, Any]
Effect = Literal["served", "reported", "none", "uncovered"]
"""*uncovered*: no object has the field, or no other value of it is valid alone."""
RANKS: tuple[Effect, ...] = ("uncovered", "none", "reported", "served")
CASES = (
    Path(__file__).with_name("field_world.yaml"),
    *sorted((Path(__file__).parents[1] / "golden").glob("*/input.yaml")),
)
MAX_PLACES, MAX_VALUES = 6, 4
"""Maximum number of places of a leaf that are changed, and of values at each."""
TEXTS = (
    "TLSv1.2",
    "other", "x.example", "*.x.example", "/other", "7s", "7m", "3", "10.9.8.7", "10.9.0.0/16",
    "X-Other", "POST", "on", "off", "https://x.example/", "$request_id", "7r/s", "http", "#7",
)  # fmt: skip
NUMBERS = (1, 2, 3, 7, 50, 301, 404, 503, 8081, 65_000)


def places(value: Any, path: FieldPath) -> Iterator[tuple[Any, Any]]:
    """Yield the holder and the key of each value of a path. The last field may be missing."""
    first, rest = path[0], path[1:]
    if first == "[]":
        if isinstance(value, list):
            for index in range(len(value)):
                if rest:
                    yield from places(value[index], rest)
                else:
                    yield value, index
    elif first == "{}":
        if isinstance(value, dict):
            for name in [*value, "new"] if not rest else value:
                if rest:
                    yield from places(value[name], rest)
                else:
                    yield value, name
    elif isinstance(value, dict):
        if not rest:
            yield value, first
        elif first in value:
            yield from places(value[first], rest)
        elif rest[0] in ("[]", "{}") and len(rest) == 1:
            yield value, first


def candidates(schema: Object, before: Any, path: FieldPath, key: Any) -> Iterator[Any]:
    """Yield other values for a leaf whose value has a key in its holder."""
    if path[-1] in ("[]", "{}") and len(path) > 1 and key == path[-2]:
        for value in candidates(schema, "", path, None):
            yield [value] if path[-1] == "[]" else {"new": value}
        return
    if "enum" in schema:
        yield from (value for value in schema["enum"] if value != before)
    elif schema.get("type") == "boolean":
        yield from (not before, before is None)
    elif schema.get("type") in ("integer", "number"):
        yield from (number for number in NUMBERS if number != before)
    else:
        if isinstance(before, str) and before:
            yield f"{before}x"
            yield f"x{before}"
        yield from (text for text in TEXTS if text != before)
        if schema.get("x-kubernetes-int-or-string"):
            yield from NUMBERS
        yield {"other": "x"}


_BASE = """
apiVersion: gateway.networking.k8s.io/v1
kind: GatewayClass
metadata: {{name: gatehouse-nginx}}
spec: {{controllerName: {controller}}}
---
apiVersion: v1
kind: Namespace
metadata: {{name: ns, labels: {{kubernetes.io/metadata.name: ns}}}}
"""


@cache
def _objects(case: Path) -> tuple[Object, ...]:
    objects = (raw for raw in yaml.safe_load_all(case.read_text("utf-8")) if raw)
    return tuple(part for raw in objects for part in _split(raw))


def _split(raw: Object) -> Iterator[Object]:
    """Yield a route for each rule of an object: the validation of many rules takes long."""
    rules = raw.get("spec", {}).get("rules", ())
    if raw["kind"] not in ("HTTPRoute", "GRPCRoute") or len(rules) < 5:
        yield raw
        return
    for number, rule in enumerate(rules):
        metadata = raw["metadata"] | {"name": f"{raw['metadata']['name']}{number}"}
        yield raw | {"metadata": metadata, "spec": raw["spec"] | {"rules": [rule]}}


def _admitted(raw: Object) -> tuple[Key, Object] | None:
    """Return an object as the API server stores it; None if it rejects the object."""
    try:
        ((kind, result),) = admission.admitted_objects(yaml.safe_dump(raw))
    except AssertionError:
        return None
    return (kind, result["metadata"].get("namespace", ""), result["metadata"]["name"]), result


class World:
    """The objects of a case, compiled again after each change."""

    def __init__(self, case: Path, controller: str) -> None:
        self._controller = controller
        objects = list(admission.admitted_objects(_BASE.format(controller=controller)))
        for raw in _objects(case):
            objects += admission.admitted_objects(yaml.safe_dump(_of_controller(raw, controller)))
        self._engine = engine_with(objects, gateway_api.ControllerSettings(bind="any"))
        gateways = [raw["metadata"] for kind, raw in objects if kind == "Gateway"]
        self._gateways = [("Gateway", own["namespace"], own["name"]) for own in gateways]
        programmed = gateway_api.ProgrammedInput(programmed=True)
        self._engine.commit({("Programming", *key[1:]): programmed for key in self._gateways})
        self._generators = {key: self._generator() for key in self._gateways}
        self._before = self._outputs()

    def _generator(self) -> Any:
        if self._controller == NGINX_CONTROLLER:
            return nginx.NginxGenerator(CAPABLE_NGINX)
        return envoy.EnvoyGenerator(envoy.EnvoyCapabilities(authenticators=True))

    def _outputs(self) -> tuple[Any, Any]:
        """Return the versions of the configurations, and statuses with findings."""
        versions, findings = [], []
        with self._engine.compile() as ask:
            statuses = dict(merged_statuses(ask))
            for key in self._gateways:
                gateway = ask(combined.compile_combined_gateway, key)
                if gateway is not None:
                    generated = self._generators[key].generate(gateway)
                    content = getattr(generated, "file_set", None) or generated.resources
                    versions.append(content.version)
                    findings.append(generated.unsupported)
        return versions, (statuses, findings)

    def effect(self, key: Key, changed: Object) -> Effect:
        """Return the effect of an object that replaces the one with the same key."""
        original = self._engine.snapshot.get(key)
        self._engine.commit({key: combined.decode_object(key[0], changed)})
        versions, statuses = self._outputs()
        self._engine.commit({key: original})
        if versions != self._before[0]:
            return "served"
        return "reported" if statuses != self._before[1] else "none"


def _of_controller(raw: Object, controller: str) -> Object:
    if raw["kind"] != "GatewayClass":
        return raw
    return raw | {"spec": raw["spec"] | {"controllerName": controller}}


class Effects:
    """Effects with the proxy of a controller."""

    def __init__(self, controller: str) -> None:
        self._controller = controller
        self._worlds: dict[Path, World] = {}

    def of_kind(self, kind: str) -> dict[str, Effect]:
        """Return the greatest effect of each leaf of a kind, by its path."""
        return {
            shown(path): self._of_leaf(kind, path, schema)
            for path, schema in leaves(schemas()[kind])
        }

    def _of_leaf(self, kind: str, path: FieldPath, schema: Object) -> Effect:
        result: Effect = "uncovered"
        for case, raw, index in islice(self._places(kind, path), MAX_PLACES):
            values = 0
            holder, key = list(places(raw["spec"], path))[index]
            before = holder[key] if isinstance(holder, list) else holder.get(key)
            for value in candidates(schema, before, path, key):
                changed = copy.deepcopy(raw)
                place, name = list(places(changed["spec"], path))[index]
                place[name] = value
                admitted = _admitted(changed)
                if admitted is None:
                    continue
                result = max(result, self._world(case).effect(*admitted), key=RANKS.index)
                values += 1
                if result == "served":
                    return result
                if values == MAX_VALUES:
                    break
        return result

    def _places(self, kind: str, path: FieldPath) -> Iterator[tuple[Path, Object, int]]:
        """Yield the objects with a place of a leaf, those that have a value first."""
        absent = []
        base = tuple(yaml.safe_load_all(_BASE.format(controller=self._controller)))
        for case in CASES:
            for written in (*(base if case == CASES[0] else ()), *_objects(case)):
                if written["kind"] != kind:
                    continue
                raw = _of_controller(written, self._controller)
                for index, (holder, key) in enumerate(places(raw.get("spec", {}), path)):
                    if isinstance(holder, list) or key in holder:
                        yield case, raw, index
                    else:
                        absent.append((case, raw, index))
        yield from absent

    def _world(self, case: Path) -> World:
        if case not in self._worlds:
            self._worlds[case] = World(case, self._controller)
        return self._worlds[case]
