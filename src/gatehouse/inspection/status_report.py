"""State of Gateways and what belongs to them, as data: the JSON of `gatehouse status`. No I/O."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping

import msgspec

from gatehouse.apis import routes
from gatehouse.apis.gateway import DEFAULT_SCOPE
from gatehouse.apis.objects import Object
from gatehouse.compiler.evaluation.explaining import parent_problem
from gatehouse.compiler.frontends import combined
from gatehouse.compiler.frontends.gateway_api.backend_problems import used_references
from gatehouse.controller.offline import offline_pass
from gatehouse.inspection.condition_summary import bad_conditions, condition_status, object_name
from gatehouse.inspection.object_set import REPORTED_RESOURCES, ObjectSet, gateway_of_pod
from gatehouse.inspection.remedies import (
    NO_CONTROLLER,
    NO_ENDPOINTS,
    NO_PARENT,
    NO_PORT,
    POD_NOT_READY,
    Remedy,
    remedy_for,
)
from gatehouse.inspection.service_ports import ServicePorts

LISTED_ROUTE_KINDS = ("HTTPRoute", "GRPCRoute", "TLSRoute", "TCPRoute", "UDPRoute")
_SERVICE_LABEL = "kubernetes.io/service-name"
_TOPOLOGY_MODE = "service.kubernetes.io/topology-mode"
_GROUPS = {resource.kind: resource.group for resource in REPORTED_RESOURCES}


class ReportedEndpoint(msgspec.Struct, frozen=True, rename="camel"):
    """An endpoint of a backend."""

    address: str
    """IP address with the port of the endpoint if it has exactly one."""
    ready: bool
    terminating: bool = False
    """It terminates and still serves, and gets requests because no endpoint is ready."""


class ReportedBackend(msgspec.Struct, frozen=True, rename="camel"):
    """A backend of a route."""

    service: str
    """``namespace/name``."""
    ready: int
    endpoints: int
    """Number of endpoints, ready or not."""
    external: bool = False
    """The Service names a host outside the cluster, which has no endpoints."""
    addresses: tuple[ReportedEndpoint, ...] = ()
    """Its endpoints. Those that are not ready come first."""
    summary: str = ""
    """Text: ready and used endpoints, and a field of the Service that data planes do not heed."""

    port_problem: str = ""
    """Message about a port that routes name and no EndpointSlice has; empty for none."""

    @property
    def problem(self) -> str:
        """Message about missing endpoints; empty if there are some that get requests."""
        if self.port_problem:
            return self.port_problem
        if self.ready or self.external or any(entry.terminating for entry in self.addresses):
            return ""
        return f"Service {self.service}: 0 of {self.endpoints} endpoints ready"


class ReportedProblem(msgspec.Struct, frozen=True, rename="camel"):
    """A problem of an object, with the instruction to solve it."""

    text: str
    """One line that names the object."""
    remedy: str
    documentation: str
    """Path of a document in the project."""
    type: str = ""
    """Condition type; empty if the problem is no condition."""
    reason: str = ""


class ReportedObject(msgspec.Struct, frozen=True, rename="camel"):
    """An object with its problems."""

    kind: str
    namespace: str
    name: str
    group: str = ""
    class_name: str = ""
    """GatewayClass of a Gateway."""
    state: Mapping[str, str] = {}
    """Status of the main conditions, by type."""
    addresses: tuple[str, ...] = ()
    listeners: tuple[Mapping[str, str], ...] = ()
    """Name, port, protocol, hostname, number of routes and `Programmed` of each listener. Those of
    ListenerSets follow, with the name ``namespace/name/listener``."""
    hostnames: tuple[str, ...] = ()
    parents: tuple[str, ...] = ()
    """``namespace/name`` of Gateways and ListenerSets, with ``/listener`` if a route names one."""
    gateways: tuple[str, ...] = ()
    """``namespace/name`` of the Gateway of each parent, in the same order."""
    backends: tuple[ReportedBackend, ...] = ()
    problems: tuple[str, ...] = ()
    details: tuple[ReportedProblem, ...] = ()
    """The problems with their remedies, in the same order."""
    controller: str = ""
    """Controller name of a GatewayClass."""
    gateway: str = ""
    """``namespace/name`` of the Gateway of a data plane's Pod."""

    @property
    def full_name(self) -> str:
        """``namespace/name``, or the name of a cluster-scoped object."""
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


def report_status(objects: ObjectSet) -> tuple[ReportedObject, ...]:
    """Return all Gateways, routes and other objects with a status, in the order of the output."""
    orphans = _orphans(objects)
    slices = tuple(objects.of_kind("EndpointSlice"))
    endpoints, ports = _endpoints(slices), ServicePorts(slices)
    services = {_name_of(item): item for item in objects.of_kind("Service")}
    sets = tuple(objects.of_kind("ListenerSet"))
    result = [_class(item) for item in objects.of_kind("GatewayClass")]
    result += [_gateway(item, sets) for item in objects.of_kind("Gateway")]
    owners = {"/".join(_name_of(item)): _owner(item) for item in sets}
    for kind in LISTED_ROUTE_KINDS:
        for item in objects.of_kind(kind):
            backends = _backends(item, services, endpoints, ports)
            orphan = orphans.get(object_name(item), "")
            result.append(_route(item, orphan, tuple(backends), owners))
    known = {"GatewayClass", "Gateway", *LISTED_ROUTE_KINDS}
    others = [resource.kind for resource in combined.KINDS.with_status]
    for kind in (*others, "UpstreamCluster", "ExternalLoadBalancer"):
        if kind not in known:
            known.add(kind)
            result += [_other(item) for item in objects.of_kind(kind)]
    return (*result, *(_pod(pod) for pod in objects.pods))


def _name_of(item: Object) -> tuple[str, str]:
    return item["metadata"].get("namespace", ""), item["metadata"]["name"]


def _reported(
    item: Object, problems: Iterable[ReportedProblem], **fields: object
) -> ReportedObject:
    namespace, name = _name_of(item)
    kind = item["kind"]
    unique = tuple(dict.fromkeys(problems))
    known = {
        "group": _GROUPS.get(kind, ""),
        "problems": tuple(problem.text for problem in unique),
        "details": msgspec.to_builtins(unique),
        **fields,
    }
    return msgspec.convert({"kind": kind, "namespace": namespace, "name": name, **_camel(known)},
                           ReportedObject)  # fmt: skip


def _camel(fields: Mapping[str, object]) -> dict[str, object]:
    return {"className" if key == "class_name" else key: value for key, value in fields.items()}


def _conditions(item: Object) -> list[ReportedProblem]:
    return [
        _problem(bad.text, remedy_for(bad.type, bad.reason), bad.type, bad.reason)
        for bad in bad_conditions(item)
    ]


def _problem(text: str, remedy: Remedy, kind: str = "", reason: str = "") -> ReportedProblem:
    return ReportedProblem(text, remedy.sentence, remedy.document, kind, reason)


def _state(conditions: list[Object] | None, *types: str) -> dict[str, str]:
    return {kind: condition_status(conditions, kind)[0] for kind in types}


def _class(item: Object) -> ReportedObject:
    conditions = (item.get("status") or {}).get("conditions")
    controller = item["spec"].get("controllerName", "")
    return _reported(
        item,
        _conditions(item) if "gatehouse" in controller else (),
        state=_state(conditions, "Accepted"),
        controller=controller,
    )


def _owner(listener_set: Object) -> str:
    """Return the ``namespace/name`` of the Gateway of a ListenerSet."""
    parent, namespace = listener_set["spec"]["parentRef"], _name_of(listener_set)[0]
    return f"{parent.get('namespace') or namespace}/{parent['name']}"


def _gateway(item: Object, sets: Iterable[Object]) -> ReportedObject:
    status = item.get("status") or {}
    problems = _conditions(item)
    if condition_status(status.get("conditions"), "Programmed")[0] == "Unknown" and not problems:
        class_name = item["spec"].get("gatewayClassName")
        text = f"{object_name(item)}: no status yet: no controller manages {class_name}"
        problems = [_problem(text, NO_CONTROLLER)]
    name = "/".join(_name_of(item))
    listeners = [*_listeners(item, "")]
    for listener_set in sets:
        if _owner(listener_set) == name:
            listeners += _listeners(listener_set, f"{'/'.join(_name_of(listener_set))}/")
    return _reported(
        item,
        problems,
        class_name=item["spec"].get("gatewayClassName", ""),
        state=_state(status.get("conditions"), "Accepted", "Programmed"),
        addresses=[entry["value"] for entry in status.get("addresses") or ()],
        listeners=listeners,
    )


def _listeners(item: Object, prefix: str) -> Iterable[Mapping[str, str]]:
    """Yield the listeners of a Gateway or ListenerSet. ``prefix``: start of their names."""
    states = {entry["name"]: entry for entry in (item.get("status") or {}).get("listeners") or ()}
    for listener in item["spec"].get("listeners") or ():
        own = states.get(listener["name"], {})
        yield {
            "name": f"{prefix}{listener['name']}",
            "port": str(listener["port"]),
            "protocol": listener["protocol"],
            "hostname": listener.get("hostname", ""),
            "routes": str(own.get("attachedRoutes", "")),
            **_state(own.get("conditions"), "Programmed"),
        }


def _route(
    item: Object,
    orphan: str,
    backends: tuple[ReportedBackend, ...],
    owners: Mapping[str, str],
) -> ReportedObject:
    namespace = item["metadata"].get("namespace", "")
    entries = (item.get("status") or {}).get("parents") or [{}]
    state: dict[str, str] = {}
    for kind in ("Accepted", "ResolvedRefs"):
        values = [condition_status(entry.get("conditions"), kind)[0] for entry in entries]
        state[kind] = next((value for value in values if value != "True"), "True")
    problems = _conditions(item)
    if orphan and not any(problem.type == "Accepted" for problem in problems):
        problems.append(_problem(f"{object_name(item)}: {orphan}", NO_PARENT))
    problems += [
        _problem(
            f"{object_name(item)}: {entry.problem}", NO_PORT if entry.port_problem else NO_ENDPOINTS
        )
        for entry in backends
        if entry.problem
    ]
    parents = _parents(item, namespace)
    return _reported(
        item,
        problems,
        state=state,
        hostnames=item["spec"].get("hostnames") or (),
        parents=[*parents],
        gateways=[owners.get(name, name) if of_set else name for name, of_set in parents.values()],
        backends=msgspec.to_builtins(backends),
    )


def _parents(item: Object, namespace: str) -> dict[str, tuple[str, bool]]:
    """Return the parents that a route names, and the default Gateways that claimed it.

    Each has its ``namespace/name``, and whether it is a ListenerSet.
    """
    references = [*(item["spec"].get("parentRefs") or ())]
    if item["spec"].get("useDefaultGateways") == DEFAULT_SCOPE:
        entries = (item.get("status") or {}).get("parents") or ()
        references += (entry["parentRef"] for entry in entries)
    result = {}
    for parent in references:
        name = f"{parent.get('namespace', namespace)}/{parent['name']}"
        place = "/".join(filter(None, (name, parent.get("sectionName"))))
        result[place] = (name, parent.get("kind") == "ListenerSet")
    return result


def _backends(
    item: Object,
    services: Mapping[tuple[str, str], Object],
    endpoints: Mapping[tuple[str, str], tuple[ReportedEndpoint, ...]],
    service_ports: ServicePorts,
) -> Iterable[ReportedBackend]:
    """Yield the existing Services of a route. Conditions report the missing ones."""
    namespace = item["metadata"].get("namespace", "")
    ports: dict[tuple[str, str], list[int]] = {}
    route = combined.decode_object(item["kind"], item)
    for reference in used_references(route) if isinstance(route, routes.RouteObject) else ():
        key = (reference.namespace or namespace, reference.name)
        if key in services:
            ports.setdefault(key, []).append(reference.port or 0)
    transport = "UDP" if item["kind"] == "UDPRoute" else "TCP"
    for key, numbers in ports.items():
        problem = service_ports.problem(services[key], numbers, transport)
        yield _backend(services[key], endpoints.get(key, ()), problem)


def _backend(
    service: Object, endpoints: tuple[ReportedEndpoint, ...], port_problem: str
) -> ReportedBackend:
    ready = sum(endpoint.ready for endpoint in endpoints)
    terminating = sum(endpoint.terminating for endpoint in endpoints)
    external = service["spec"].get("type") == "ExternalName"
    summary = "external name" if external else f"{ready} of {len(endpoints)} endpoints ready"
    if terminating:
        summary += f", {terminating} used while terminating"
    if port_problem:
        summary += f"; {port_problem.partition(': ')[2]}"
    if wish := _topology_wish(service):
        summary += f"; {wish} needs useClusterIP"
    name = "/".join(_name_of(service))
    return ReportedBackend(name, ready, len(endpoints), external, endpoints, summary, port_problem)


def _topology_wish(service: Object) -> str:
    """Return the field by which a Service wants endpoints near the client; empty for none.

    Kube-proxy heeds it. Data planes use all endpoints alike.
    """
    if wish := service["spec"].get("trafficDistribution"):
        return f"trafficDistribution {wish}"
    annotations = service["metadata"].get("annotations") or {}
    return _TOPOLOGY_MODE if annotations.get(_TOPOLOGY_MODE, "").lower() == "auto" else ""


def _endpoints(
    slices: Iterable[Object],
) -> Mapping[tuple[str, str], tuple[ReportedEndpoint, ...]]:
    """Return the endpoints of each Service, sorted."""
    slices_by_service: dict[tuple[str, str], list[Object]] = defaultdict(list)
    for item in slices:
        service = (item["metadata"].get("labels") or {}).get(_SERVICE_LABEL, "")
        if item.get("addressType") != "FQDN":
            slices_by_service[item["metadata"].get("namespace", ""), service].append(item)
    return {key: _of_service(own) for key, own in slices_by_service.items()}


def _of_service(slices: Iterable[Object]) -> tuple[ReportedEndpoint, ...]:
    """Return the endpoints of a Service. If none is ready, those that still serve are used."""
    pairs = [(entry, item) for item in slices for entry in item.get("endpoints") or ()]
    conditions = [entry.get("conditions") or {} for entry, _ in pairs]
    ready = [known.get("ready") is not False for known in conditions]
    leaving = [bool(known.get("serving") and known.get("terminating")) for known in conditions]
    result = (
        ReportedEndpoint(_address(entry, item), ready[number], leaving[number] and not any(ready))
        for number, (entry, item) in enumerate(pairs)
    )
    return tuple(sorted(result, key=lambda endpoint: (endpoint.ready, endpoint.address)))


def _address(endpoint: Object, endpoint_slice: Object) -> str:
    ports = [port["port"] for port in endpoint_slice.get("ports") or () if port.get("port")]
    address: str = next(iter(endpoint.get("addresses") or ()), "")
    if len(ports) != 1:
        return address
    return f"[{address}]:{ports[0]}" if ":" in address else f"{address}:{ports[0]}"


def _other(item: Object) -> ReportedObject:
    conditions = (item.get("status") or {}).get("conditions")
    return _reported(item, _conditions(item), state=_state(conditions, "Programmed"))


def _pod(item: Object) -> ReportedObject:
    status = item.get("status") or {}
    containers = status.get("containerStatuses") or [{}]
    ready = condition_status(status.get("conditions"), "Ready")[0]
    waiting = ((containers[0].get("state") or {}).get("waiting") or {}).get("message", "")
    text = f"{object_name({**item, 'kind': 'Pod'})}: not ready{f': {waiting}' if waiting else ''}"
    state = {"Ready": ready, "Restarts": str(containers[0].get("restartCount", 0))}
    address = [status["podIP"]] if status.get("podIP") else []
    problems = [] if ready == "True" else [_problem(text, POD_NOT_READY)]
    fields = {"state": state, "addresses": address, "gateway": gateway_of_pod(item)}
    return _reported({**item, "kind": "Pod"}, problems, **fields)


def _orphans(objects: ObjectSet) -> Mapping[str, str]:
    """Return by route the reason why no managed Gateway serves it."""
    result = {}
    with offline_pass(objects.objects) as ask:
        for kind in LISTED_ROUTE_KINDS:
            for item in objects.of_kind(kind):
                result[object_name(item)] = ask(parent_problem, (kind, *_name_of(item)))
    return result
