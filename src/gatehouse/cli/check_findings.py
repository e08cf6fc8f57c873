"""Findings of `gatehouse check`: objects that an API server, the controller or a proxy rejects."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Set
from typing import Literal

import msgspec

from gatehouse.apiserver_extension.extension import bundled
from gatehouse.cli.check_proxies import ProxyTests
from gatehouse.cli.manifest_files import PlacedObject
from gatehouse.cli.object_source import ASSUMED_TIME
from gatehouse.compiler.evaluation.explaining import parent_problem
from gatehouse.compiler.evaluation.traffic import TrafficEntry, TrafficTarget, traffic_of
from gatehouse.compiler.frontends import combined, gateway_api
from gatehouse.controller.offline import compile_pass, offline_engine
from gatehouse.dataplane.origin import object_of
from gatehouse.incremental.query import Ask, Engine, Key
from gatehouse.inspection.condition_summary import BadCondition, bad_conditions, object_name
from kube_api_server.builtin.kinds import BUILTIN_KINDS
from kube_api_server.objects import crds
from kube_api_server.objects.admission import check_new_object
from kube_api_server.objects.registry import Registry
from kube_base.types.objects import Object

Source = Literal["schema", "unknown-field", "duplicate", "condition", "reference", "proxy"]

_PATH = re.compile(r"(?:spec\.)?[a-zA-Z]+(?:\[\d+\])?(?:\.[a-zA-Z]+(?:\[\d+\])?)*(?=: )")
"""Field path at the start of a condition's message."""

_LISTENER = re.compile(r"spec\.listeners\[name=([^\]]*)\]")

_UNJUDGED = frozenset({"SupportedVersion"})
"""Condition types that depend on the cluster and not on manifests."""

_INFORMATIVE = frozenset({"KubeGatewayCompatible"})
"""Condition types that become notes, since everything is served as documented."""


class CheckFinding(msgspec.Struct, frozen=True, rename="camel"):
    """A problem of an object, with its place."""

    source: Source
    """``schema``, ``unknown-field``, ``duplicate``: the API server. ``condition``: the controller.
    ``reference``: the name of a parent does not resolve. ``proxy``: NGINX or Envoy."""
    object: str
    """``Kind namespace/name``."""
    message: str
    field: str = ""
    """Path of the field; empty if the message is about the whole object."""
    file: str = ""
    """Empty for an object that is not in the manifests."""
    document: int = 0
    """Number of the document in the file, from 1."""
    reason: str = ""
    """Type and reason of the condition."""

    @property
    def is_note(self) -> bool:
        """True if the finding is not a problem."""
        return self.reason.partition(":")[0] in _INFORMATIVE

    @property
    def text(self) -> str:
        """The finding as one line."""
        place = f"{self.file}#{self.document}: " if self.file else ""
        reason = f" ({self.reason})" if self.reason else ""
        return f"{place}{self.object}: {self.message}{reason}"


class AdmittedManifests:
    """Objects as an API server would store them, and the findings about the others."""

    def __init__(self, manifests: Iterable[PlacedObject], namespace: str) -> None:
        """``namespace``: that of objects that name none."""
        self.objects: list[Object] = []
        self.places: dict[Key, PlacedObject] = {}
        self.findings: list[CheckFinding] = []
        self.notes: list[str] = []
        manifests = list(manifests)
        self._registry = _registry(manifest.value for manifest in manifests)
        self._groups = {served.resource.group for served in self._registry.all()}
        for manifest in manifests:
            self._admit(manifest, namespace)

    def place(self, key: Key, finding: CheckFinding) -> CheckFinding:
        """Return a finding with the place of its object."""
        manifest = self.places.get(key)
        if manifest is None:
            return finding
        listeners = (manifest.value.get("spec") or {}).get("listeners") or ()
        numbers = {entry["name"]: index for index, entry in enumerate(listeners)}
        field = _LISTENER.sub(
            lambda match: f"spec.listeners[{numbers.get(match[1], match[1])}]", finding.field
        )
        place = {"file": manifest.file, "document": manifest.document}
        return msgspec.structs.replace(finding, field=field, **place)

    def _admit(self, manifest: PlacedObject, namespace: str) -> None:
        value = manifest.value
        api_version, kind = str(value.get("apiVersion", "")), value["kind"]
        served = self._registry.by_kind(api_version, kind)
        if served is None:
            self._unknown_kind(manifest, api_version)
            return
        metadata = value["metadata"]
        if served.resource.namespaced:
            metadata.setdefault("namespace", namespace)
        else:
            metadata.pop("namespace", None)
        key = (kind, metadata.get("namespace", ""), metadata["name"])
        if key in self.places:
            message = f"defined in {self.places[key].place}, too"
            self._add(manifest, "duplicate", message)
            return
        self.places[key] = manifest
        for name in manifest.repeated_keys:
            self._add(manifest, "duplicate", f"key {name!r} is repeated", name)
        unknown, causes = check_new_object(served, value)
        for field in unknown:
            self._add(manifest, "unknown-field", f"{field}: unknown field", field)
        for cause in causes:
            field = cause.field.replace("<nil>", "")
            message = f"{field}: {cause.message}" if field else cause.message
            self._add(manifest, "schema", message, field)
        if causes:
            return
        value["apiVersion"] = served.storage_api_version
        value.pop("status", None)
        metadata.setdefault("creationTimestamp", ASSUMED_TIME)
        metadata.setdefault("generation", 1)
        self.objects.append(value)

    def _unknown_kind(self, manifest: PlacedObject, api_version: str) -> None:
        group, kind = api_version.rpartition("/")[0], manifest.value["kind"]
        if api_version and group not in self._groups:
            self.notes.append(f"{manifest.place}: {object_name(manifest.value)}: kind not checked")
            return
        versions = sorted(
            {
                f"{served.resource.group}/{served.resource.version}".lstrip("/")
                for served in self._registry.all()
                if served.resource.kind == kind
            }
        )
        known = f"; known: {', '.join(versions)}" if versions else ""
        message = f"apiVersion: {api_version!r} has no kind {kind}{known}"
        self._add(manifest, "schema", message, "apiVersion")

    def _add(self, manifest: PlacedObject, source: Source, message: str, field: str = "") -> None:
        name, place = object_name(manifest.value), (manifest.file, manifest.document)
        self.findings.append(CheckFinding(source, name, message, field, *place))


def _registry(values: Iterable[Object]) -> Registry:
    """Return the built-in and bundled kinds, and those of valid CRDs among objects."""
    definitions = {item["metadata"]["name"]: item for item in bundled()}
    registry = Registry(BUILTIN_KINDS)
    for definition in definitions.values():
        _serve(registry, definition)
    for value in values:
        if value["kind"] == "CustomResourceDefinition":
            served = registry.by_kind("apiextensions.k8s.io/v1", value["kind"])
            copy = msgspec.json.decode(msgspec.json.encode(value))
            if served is not None and not check_new_object(served, copy)[1]:
                _serve(registry, copy)
    return registry


def _serve(registry: Registry, definition: Object) -> None:
    spec = definition["spec"]
    registry.replace(spec["group"], spec["names"]["plural"], crds.served_by(definition))


class CheckedObjects(msgspec.Struct, frozen=True):
    """Result of the compilation of objects."""

    findings: tuple[tuple[Key, CheckFinding], ...]
    """Findings of the front and back ends by object."""
    traffic: Mapping[TrafficEntry, TrafficTarget]
    engine: Engine
    gateways: tuple[tuple[Key, str], ...]
    """Gateways with a configuration, and the controller name of their class."""


def compile_objects(
    objects: Iterable[Object], settings: gateway_api.ControllerSettings
) -> CheckedObjects:
    """Compile objects with data planes that have everything."""
    engine = offline_engine(objects, settings, programmed=True)
    traffic: dict[TrafficEntry, TrafficTarget] = {}
    gateways = []
    with compile_pass(engine) as ask:
        for key in ask(gateway_api.gateways):
            configuration = ask(combined.compile_combined_gateway, key)
            if configuration is not None:
                traffic |= traffic_of(configuration)
                gateways.append((key, ask(gateway_api.class_controller, key)))
        findings = tuple(_condition_findings(ask))
        findings += tuple(_parent_findings(ask, {key for key, _ in findings}))
    return CheckedObjects(findings, traffic, engine, tuple(gateways))


def _condition_findings(ask: Ask) -> Iterator[tuple[Key, CheckFinding]]:
    for key in ask(combined.status_subjects):
        desired = combined.desired_status(ask, key)
        if desired is None:
            continue
        status = combined.merge_combined_status(key[0], None, desired, ASSUMED_TIME)
        metadata = {"namespace": key[1], "name": key[2]}
        bad = bad_conditions({"kind": key[0], "metadata": metadata, "status": status})
        causes = {(entry.part, entry.object) for entry in bad if entry.type != "Programmed"}
        for entry in bad:
            follows = entry.type == "Programmed" and (entry.part, entry.object) in causes
            if entry.type not in _UNJUDGED and not follows:
                yield key, _condition_finding(entry)


def _condition_finding(bad: BadCondition) -> CheckFinding:
    message = bad.message or bad.reason
    field = field_of(message)
    if bad.part.startswith("listener "):
        prefix = f"{bad.part}: "
        message = f"{prefix}{message.removeprefix(prefix)}"
        field = field_of(f"spec.listeners[0].{message.removeprefix(prefix)}")
        field = field.replace("[0]", f"[name={bad.part.removeprefix('listener ')}]", 1)
    reason = f"{bad.type}: {bad.reason}" if bad.reason else bad.type
    return CheckFinding("condition", bad.object, message, field, reason=reason)


def field_of(message: str) -> str:
    """Return the field path at the start of a condition's message; empty if there is none."""
    match = _PATH.match(message)
    if match is None or not ("[" in match[0] or "." in match[0]):
        return ""
    return match[0] if match[0].startswith("spec.") else f"spec.{match[0]}"


def _parent_findings(ask: Ask, known: Set[Key]) -> Iterator[tuple[Key, CheckFinding]]:
    """Yield routes without a Gateway that Gatehouse manages, which have no conditions."""
    for key in ask.read(gateway_api.ROUTES_KEY):
        reason = parent_problem(ask, key) if key not in known else ""
        if reason:
            name = str(object_of(key))
            yield key, CheckFinding("reference", name, reason, field_of(reason))


def proxy_findings(
    checked: CheckedObjects, tests: ProxyTests
) -> Iterator[tuple[Key, CheckFinding]]:
    """Yield what the proxy of each Gateway rejects."""
    for gateway, controller in checked.gateways:
        test = tests.get(controller)
        for rejection in test.rejections(checked.engine, gateway) if test is not None else ():
            origin = rejection.origin
            field = f"spec.{origin.part}" if origin.part else ""
            at = f" at Gateway {gateway[1]}/{gateway[2]}" if origin.kind != "Gateway" else ""
            message = f"{field}: {rejection.message}{at}" if field else f"{rejection.message}{at}"
            key = gateway_api.key_of(origin)
            yield key, CheckFinding("proxy", str(origin.whole), message, field)
