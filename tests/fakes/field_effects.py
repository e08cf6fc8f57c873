"""Effects of single fields of objects: each leaf of a schema, changed in objects that are served.

The objects are those of ``field_world*.yaml``, of the golden cases and of the provisioner's cases.
A change of a leaf is *served* if the configuration of a data plane or an object that the controller
writes differs then. It is *reported* if only a status does, or if a status names the field or one
above it.
"""

from __future__ import annotations

import copy
import re
from base64 import b64decode, b64encode
from collections.abc import Iterator, Mapping
from functools import cache
from itertools import islice
from operator import methodcaller
from pathlib import Path
from string import ascii_lowercase, ascii_uppercase, digits
from typing import Any, Literal, Self

import msgspec
import yaml
from served_fields import FieldPath, leaves, schemas, shown

from fakes.admission import admitted
from fakes.balancer_effects import BalancerOutputs
from fakes.compiled_objects import CAPABLE_NGINX, merged_statuses
from gatehouse.apis.gateway import ENVOY_CONTROLLER, NGINX_CONTROLLER
from gatehouse.compiler.backends import envoy
from gatehouse.compiler.frontends import combined, gateway_api
from gatehouse.controller import outputs, provisioning_plan
from gatehouse.controller.offline import compile_pass, offline_engine
from gatehouse.controller.provisioner.manifests import ProvisionerSettings, desired
from gatehouse.controller.provisioner.patches import PatchError
from gatehouse.controller.provisioner.pod_security import ForbiddenPodError
from gatehouse.incremental.query import Ask, Key

Object = dict[str, Any]
Effect = Literal["served", "reported", "none", "fixed", "uncovered"]
"""*fixed*: no other value of the field is valid alone. *uncovered*: no object has the field."""
RANKS: tuple[Effect, ...] = ("uncovered", "fixed", "none", "reported", "served")
CASES = (
    *sorted(Path(__file__).parent.glob("field_world*.yaml")),
    *sorted((Path(__file__).parents[1] / "controller/provisioner/cases").glob("*/input.yaml")),
    *sorted((Path(__file__).parents[1] / "golden").glob("*/input.yaml")),
)
MAX_PLACES, MAX_VALUES = 6, 4
"""Maximum number of places of a leaf that are changed, and of values at each."""
TEXTS = (
    "TLSv1.2", "UDP", "TCP",
    "other", "x.example", "*.x.example", "/other", "7s", "7m", "3", "10.9.8.7", "10.9.0.0/16",
    "X-Other", "POST", "on", "off", "https://x.example/", "$request_id", "7r/s", "http", "#7",
)  # fmt: skip
SIMILAR = {
    r"\d+(\.\d+){3}/\d+": "10.9.0.0/16",
    r"\d+(\.\d+){3}": "10.9.8.7",
    r"\d+(ms|s|m|h)": "7s",
    r"\d+[kmg]": "64k",
    r"\d+[KMG]i": "64Ki",
    r"https?://.*": "https://x.example/",
    r"on": "off",
    r"any": "expired",
    r"[A-Za-z0-9+/]+=+": "b3RoZXI=",
}
"""Other values of texts in these forms."""
NUMBERS = (1, 2, 3, 7, 50, 301, 404, 503, 8081, 65_000)
CAPABILITIES: Mapping[str, Any] = {
    NGINX_CONTROLLER: msgspec.structs.replace(CAPABLE_NGINX, access_log=True, traces=True),
    ENVOY_CONTROLLER: envoy.EnvoyCapabilities(
        "system.pem", authenticators=True, runtime_limits=True
    ),
}
SETTINGS = gateway_api.ControllerSettings(
    bind="any",
    snippets=True,
    counter="limits:8081",
    workload_overrides=True,
    external_names=("example",),
)
PROVISIONER = ProvisionerSettings(
    {"nginx": "example.com/nginx:1", "envoy": "example.com/envoy:1"},
    "control", 443, "control", "PEM", "control", pod_security="privileged",
)  # fmt: skip


def places(value: Any, path: FieldPath, trail: str = "") -> Iterator[tuple[Any, Any, str]]:
    """Yield holder and key of each value of a path, and where it is. It may be missing."""
    first, rest = path[0], path[1:]
    if first == "[]":
        if isinstance(value, list):
            for index in range(len(value)):
                where = f"{trail}[{index}]"
                if rest:
                    yield from places(value[index], rest, where)
                else:
                    yield value, index, where
    elif first == "{}":
        if isinstance(value, dict):
            for name in [*value, "new"] if not rest else value:
                if rest:
                    yield from places(value[name], rest, f"{trail}[{name}]")
                else:
                    yield value, name, f"{trail}[{name}]"
    elif isinstance(value, dict):
        where = f"{trail}.{first}" if trail else first
        if not rest:
            yield value, first, where
        elif first in value:
            yield from places(value[first], rest, where)
        elif rest[0] in ("[]", "{}") and len(rest) == 1:
            yield value, first, where


def _next(text: str) -> str:
    """Return a text of the same form whose last character is another one."""
    end = text[-1]
    group = next((one for one in (digits, ascii_uppercase, ascii_lowercase) if end in one), end)
    return text[:-1] + group[(group.index(end) + 1) % len(group)]


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
        if isinstance(before, dict):
            yield {**before, "other": "x"}
        if isinstance(before, str) and before:
            yield from (other for form, other in SIMILAR.items() if re.fullmatch(form, before))
            if before.startswith("LS0t"):
                yield b64encode(b64decode(before) * 2).decode()
            yield f"{before}x"
            yield f"x{before}"
        yield from (text for text in TEXTS if text != before)
        if isinstance(before, str) and before:
            yield _next(before)
        if schema.get("x-kubernetes-int-or-string"):
            yield from NUMBERS
        yield {"other": "x"}


_PARENTS = ("GatewayClass", "Gateway")
_REFERENCES = ("group", "kind", "name", "namespace", "sectionName", "key", "port")
"""Last names of fields that refer to something. A change that breaks them proves that they are
read."""
_FALSE = methodcaller("count", '"status":"False"')

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
    objects = (raw for raw in yaml.load_all(case.read_text("utf-8"), yaml.CSafeLoader) if raw)
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


def _key(raw: Object) -> Key:
    return (raw["kind"], raw["metadata"].get("namespace", ""), raw["metadata"]["name"])


def _as_stored(raw: Object) -> Object | None:
    """Return an object as the API server stores it; None if it rejects the object."""
    try:
        return admitted(raw)[1]
    except AssertionError:
        return None


class GatewayOutputs:
    """Configuration, written objects and statuses of Gateways and attached objects."""

    def __init__(self, objects: list[Object], controller: str) -> None:
        self._raw = {_key(raw): raw for raw in objects}
        # Ceilings hold for what a Gateway's parameters may override without the option.
        has_limits = any("resourceLimits" in raw.get("spec", ()) for raw in objects)
        settings = msgspec.structs.replace(SETTINGS, workload_overrides=not has_limits)
        self._engine = offline_engine(objects, settings, programmed=True)
        for key in self._raw:
            if key[0] == "Gateway":
                capabilities = outputs.capabilities_key(controller, key)
                self._engine.commit({capabilities: CAPABILITIES[controller]})

    def put(self, raw: Object) -> Object:
        """Store an object. Return the object that it replaces."""
        key = _key(raw)
        before = self._raw[key]
        self._raw[key] = raw
        self._engine.commit({key: combined.decode_object(key[0], raw)})
        return before

    def compiled(self) -> tuple[Any, dict[Key, str]]:
        """Return configurations with written objects, and the text of each status."""
        with compile_pass(self._engine) as ask:
            texts = {key: status.decode() for key, status in merged_statuses(ask)}
            written: list[Any] = [ask(gateway_api.fetches)]
            for key in ask(gateway_api.gateways):
                output = ask(outputs.gateway_output, key)
                written.append(output and output.content.version)
                written.append(self._provisioned(ask, key, texts))
            for _, owned in combined.KINDS.owned:
                written += [
                    owned.build(owner, state)
                    for owner in ask.read(owned.owners)
                    if (state := ask(owned.desired, owner)) is not None
                ]
        return written, texts

    def _provisioned(self, ask: Ask, key: Key, texts: dict[Key, str]) -> Any:
        """Return the provisioned objects. Add the message of the condition if there are none."""
        plan = ask(provisioning_plan.plan_provisioning, key)
        raw = self._raw[key]
        raw["metadata"].setdefault("uid", "u")
        try:
            return None if plan.waiting else desired(raw, PROVISIONER, plan)
        except (PatchError, ForbiddenPodError) as error:
            texts[key] += str(error)
            return None


class World:
    """The objects of a case, compiled again after each change."""

    def __init__(self, case: Path, controller: str) -> None:
        texts = yaml.safe_load_all(_BASE.format(controller=controller))
        base = {_key(raw): admitted(raw)[1] for raw in texts}
        for raw in copy.deepcopy(_objects(case)):
            stored = admitted(_of_controller(raw, controller))[1]
            base[_key(stored)] = stored
        objects = list(base.values())
        has_balancer = any(raw["kind"] == "ExternalLoadBalancer" for raw in objects)
        self._outputs = (BalancerOutputs if has_balancer else GatewayOutputs)(objects, controller)
        self._before = self._outputs.compiled()

    def effect(self, changed: Object, where: str, *, is_reference: bool) -> Effect:
        """Return the effect of an object that replaces the one with the same key.

        ``where``: path of the changed field below ``spec``.
        """
        original = self._outputs.put(changed)
        written, texts = self._outputs.compiled()
        self._outputs.put(original)
        if written != self._before[0] and (is_reference or not self._is_worse(changed, texts)):
            return "served"
        if texts != self._before[1] or self._is_named(_key(changed), where):
            return "reported"
        return "none"

    def _is_worse(self, changed: Object, texts: dict[Key, str]) -> bool:
        """Return whether a change made the object invalid: its status, or any if it has none."""
        before, key = self._before[1], _key(changed)
        keys = [key] if key in before else [other for other in before if other[0] in _PARENTS]
        return any(_FALSE(texts.get(other, "")) > _FALSE(before[other]) for other in keys)

    def _is_named(self, key: Key, where: str) -> bool:
        """Return whether a status names a field of an object, one above it, or the whole object.

        The status of the object need not name the object.
        """
        name = f"{key[0]} {key[1]}/{key[2]}"
        above = [where[: end.start()] for end in re.finditer(r"(?=[.\[])", where)]
        fields = "|".join(map(re.escape, (*above, where)))
        field = re.compile(rf"(?<![\w.])(?:spec\.)?(?:{fields})(?![\w\[]|\.\w)")
        for subject, text in self._before[1].items():
            for message in text.split(";"):
                if name in message:
                    problem = message.partition(name)[2]
                elif subject == key:
                    problem = message
                else:
                    continue
                whole = "not supported" in problem and re.search(r"spec\.|\w\[", problem) is None
                if whole or field.search(problem):
                    return True
        return False


def _of_controller(raw: Object, controller: str) -> Object:
    if raw["kind"] != "GatewayClass":
        return raw
    return raw | {"spec": raw["spec"] | {"controllerName": controller}}


class Effects:
    """Effects with the proxy of a controller."""

    def __init__(self, controller: str) -> None:
        self._controller = controller
        self._worlds: dict[Path, World] = {}
        self._base = tuple(yaml.safe_load_all(_BASE.format(controller=controller)))

    @classmethod
    @cache
    def of(cls, controller: str) -> Self:
        """Return the effects with a controller, whose worlds are compiled once in a process."""
        return cls(controller)

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
            holder, key, where = list(places(raw["spec"], path))[index]
            before = holder[key] if isinstance(holder, list) else holder.get(key)
            if before is not None:
                result = max(result, "fixed", key=RANKS.index)
            for value in candidates(schema, before, path, key):
                changed = copy.deepcopy(raw)
                place, name, _ = list(places(changed["spec"], path))[index]
                place[name] = value
                stored = _as_stored(changed)
                if stored is None:
                    continue
                world = self._world(case)
                effect = world.effect(stored, where, is_reference=path[-1] in _REFERENCES)
                result = max(result, effect, key=RANKS.index)
                values += 1
                if result == "served":
                    return result
                if values == MAX_VALUES:
                    break
        return result

    def _places(self, kind: str, path: FieldPath) -> Iterator[tuple[Path, Object, int]]:
        """Yield the objects with a place of a leaf, those that have a value first."""
        absent = []
        for case in CASES:
            for written in (*(self._base if case == CASES[0] else ()), *_objects(case)):
                if written["kind"] != kind:
                    continue
                raw = _of_controller(written, self._controller)
                for index, (holder, key, _) in enumerate(places(raw.get("spec", {}), path)):
                    if isinstance(holder, list) or key in holder:
                        yield case, raw, index
                    else:
                        absent.append((case, raw, index))
        yield from absent

    def _world(self, case: Path) -> World:
        if case not in self._worlds:
            self._worlds[case] = World(case, self._controller)
        return self._worlds[case]
