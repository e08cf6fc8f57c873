"""A route as Gateways serve it: matches in order, filters, policies, backends. No I/O."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from gatehouse.apis import routes
from gatehouse.compiler.evaluation.backend_facts import (
    applied_rule,
    applied_settings,
    applied_tls_policies,
    empty_clusters,
    explain_backends,
)
from gatehouse.compiler.evaluation.explaining import HTTP_KINDS, RULE_PLACE, parent_problem
from gatehouse.compiler.evaluation.explanation import AppliedSource, ExplainedBackend
from gatehouse.compiler.evaluation.traffic import action_text, l4_text, match_text
from gatehouse.compiler.frontends import combined
from gatehouse.compiler.frontends.gateway_api.attachment.hostname_conflicts import attachments
from gatehouse.compiler.frontends.gateway_api.classes import class_controller
from gatehouse.compiler.frontends.gateway_api.inputs import unsupported_key
from gatehouse.compiler.ir import http
from gatehouse.compiler.ir.access_log import object_text
from gatehouse.compiler.ir.gateway import GatewayConfiguration, L4Host
from gatehouse.controller.offline import compile_pass
from gatehouse.dataplane.origin import Origin, object_of
from gatehouse.incremental.query import Ask, Key
from gatehouse.inspection.attachment_report import LISTED_ROUTE_KINDS
from gatehouse.inspection.errors import InspectionError
from gatehouse.inspection.object_set import ObjectSet
from gatehouse.inspection.request_explanation import live_engine


class _Part(msgspec.Struct, frozen=True, rename="camel"):
    """Base of all parts."""


class ServedMatch(_Part, frozen=True):
    """A match of the route at a hostname."""

    match: str
    """``Kind namespace/name: spec.rules[0].matches[0]``."""
    rule: int
    place: int
    """Place among all matches of the hostname, also those of other routes: 1 is tried first."""
    needs: str
    """Properties that a request must have; empty: every connection matches."""
    action: str
    """Backends with their weights, or the answer of the Gateway."""
    problems: tuple[str, ...] = ()
    """Parts that the proxy does not support, or that it rejected."""


class ServedHostname(_Part, frozen=True):
    """A hostname on a port of a Gateway that has matches of the route."""

    gateway: str
    """``namespace/name``."""
    controller: str
    port: int
    protocol: str
    hostname: str
    """Empty: all other hostnames."""
    matches: tuple[ServedMatch, ...]
    """In the order in which they are tried."""
    total: int
    """Number of all matches of the hostname, also those of other routes."""


class ServedBackend(ExplainedBackend, frozen=True):
    """A backend of a rule."""

    label: str = ""
    """Value of the label ``backend`` of its metrics."""


class ServedRule(_Part, frozen=True):
    """A rule of the route at a Gateway."""

    gateway: str
    rule: int
    label: str
    """Value of the label ``route`` of its metrics."""
    applied: tuple[AppliedSource, ...]
    """Filters and settings of policies, each with the field that it comes from."""
    backends: tuple[ServedBackend, ...]


class RouteRefusal(_Part, frozen=True):
    """A parent that does not serve the route."""

    parent: str
    """``Kind namespace/name``; empty: no parent exists that Gatehouse manages."""
    reason: str


class RouteReport(_Part, frozen=True):
    """Everything about a route, except its conditions."""

    route: str
    """``Kind namespace/name``."""
    hostnames: tuple[ServedHostname, ...] = ()
    rules: tuple[ServedRule, ...] = ()
    refusals: tuple[RouteRefusal, ...] = ()
    notes: tuple[str, ...] = ()
    """Kinds that the user may not read, and other reasons why the report may not be complete."""


def report_route(objects: ObjectSet, key: Key) -> RouteReport:
    """Return the report about a route. Raises InspectionError if there is no such route.

    ``key``: kind, namespace and name.
    """
    name = str(object_of(key))
    if key[0] not in LISTED_ROUTE_KINDS:
        raise InspectionError(f"kind must be one of {', '.join(LISTED_ROUTE_KINDS)}")
    if not any(_is(item, key) for item in objects.of_kind(key[0])):
        raise InspectionError(f"{name} not found")
    with compile_pass(live_engine(objects.objects)) as ask:
        if not isinstance(ask.read(key), routes.RouteObject):
            raise InspectionError(f"{name} is not valid: see its conditions")
        results = ask(attachments, key)
        gateways = sorted({result.gateway for result in results})
        candidates = [(gateway, ask(combined.compile_combined_gateway, gateway))
                      for gateway in gateways]  # fmt: skip
        served = [(at, configuration) for at, configuration in candidates if configuration]
        refusals = [
            RouteRefusal(str(object_of(result.parent)), result.refusal.message)
            for result in results
            if result.refusal is not None
        ]
        if not results:
            refusals.append(RouteRefusal("", parent_problem(ask, key)))
        return RouteReport(
            name,
            tuple(entry for at, ir in served for entry in _hostnames(ask, at, key, ir)),
            tuple(entry for at, ir in served for entry in _rules(ask, at, key, ir)),
            tuple(refusals),
            objects.notes,
        )


def _is(item: Mapping[str, object], key: Key) -> bool:
    metadata = item["metadata"]
    assert isinstance(metadata, Mapping)
    return (metadata.get("namespace", ""), metadata["name"]) == key[1:]


def _hostnames(
    ask: Ask, gateway: Key, key: Key, compiled: GatewayConfiguration
) -> Iterator[ServedHostname]:
    """Yield the hostnames of a Gateway with matches of a route."""
    base = compiled.name, ask(class_controller, gateway)
    clusters = {cluster.name: cluster for cluster in compiled.clusters}
    problems: dict[Origin, list[str]] = {}
    for item in unsupported_key(ask, gateway, key):
        text = item.reason if item.served else f"not served: {item.reason}"
        problems.setdefault(item.origin, []).append(text)

    def of_route(place: int, route: http.Route) -> ServedMatch:
        text, rule = action_text(route.action, clusters), _rule_of(route.origin)
        own = tuple(problems.get(route.origin, ()))
        return ServedMatch(str(route.origin), rule, place, match_text(route.match), text, own)

    for listener in compiled.listeners:
        for host in listener.virtual_hosts:
            own = tuple(
                of_route(place, route)
                for place, route in enumerate(host.routes, 1)
                if _belongs(route.origin, key)
            )
            if own:
                port, protocol = listener.port, listener.protocol
                yield ServedHostname(*base, port, protocol, host.hostname, own, len(host.routes))
    for l4 in compiled.l4_listeners:
        for name in l4.hosts:
            if _belongs(name.origin, key):
                whole = tuple(text for texts in problems.values() for text in texts)
                match = ServedMatch(
                    str(name.origin), name.rule, 1, _l4_needs(name), l4_text(name, clusters), whole
                )
                yield ServedHostname(*base, l4.port, l4.protocol, name.hostname, (match,), 1)


def _belongs(origin: Origin, key: Key) -> bool:
    return (origin.kind, origin.namespace, origin.name) == key


def _rule_of(origin: Origin) -> int:
    place = RULE_PLACE.match(origin.part)
    assert place is not None, origin
    return int(place["number"])


def _l4_needs(host: L4Host) -> str:
    return f"client address in {', '.join(host.sources)}" if host.sources else ""


def _rules(
    ask: Ask, gateway: Key, key: Key, compiled: GatewayConfiguration
) -> Iterator[ServedRule]:
    """Yield the rules of a route at a Gateway, with what applies to any of their matches."""
    of_rule: dict[int, list[http.Route]] = {}
    for listener in compiled.listeners:
        for host in listener.virtual_hosts:
            for route in host.routes:
                if _belongs(route.origin, key):
                    of_rule.setdefault(_rule_of(route.origin), []).append(route)
    empty = empty_clusters(ask, compiled, assume_endpoints=False)
    for number, rule in enumerate(ask.read(key).spec.rules):
        where, references = f"rules[{number}]", rule.backend_refs
        settings = dict.fromkeys(
            source
            for route in of_rule.get(number, ())
            for source in applied_settings(ask, (gateway, key), route, compiled)
        )
        backends = explain_backends(ask, (gateway, key), references, where, empty)
        applied = (
            *(applied_rule(key, rule, where) if key[0] in HTTP_KINDS else ()),
            *settings,
            *applied_tls_policies(ask, (gateway, key), references),
        )
        label = f"{key[1]}/{key[2]}/{number}"
        with_labels = tuple(_with_labels(key, references, backends))
        yield ServedRule(compiled.name, number, label, applied, with_labels)


def _with_labels(
    key: Key, references: Sequence[routes.BackendRef], backends: Iterable[ExplainedBackend]
) -> Iterator[ServedBackend]:
    for reference, backend in zip(references, backends, strict=True):
        origin = Origin(reference.kind, reference.namespace or key[1], reference.name)
        fields = {name: getattr(backend, name) for name in backend.__struct_fields__}
        yield ServedBackend(**fields, label=object_text(origin))
