"""State of Gateways and what belongs to them, as data: the JSON of `gatehouse status`. No I/O."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping

import msgspec

from gatehouse.apis import routes
from gatehouse.apis.hosted_api_servers import HostedAPIServer
from gatehouse.compiler.evaluation.explanation import ExplainedFailure
from gatehouse.compiler.frontends import combined
from gatehouse.compiler.frontends.gateway_api.backend_problems import used_references
from gatehouse.compiler.frontends.gateway_api.routes.backend_refs import BackendReference
from gatehouse.inspection.attachment_report import (
    KUBE_APISERVER_KINDS,
    LISTED_ROUTE_KINDS,
    ReportedAttachment,
    name_parts,
    owner_of,
    report_attachments,
)
from gatehouse.inspection.condition_summary import bad_conditions, condition_status, object_name
from gatehouse.inspection.kube_apiserver_report import ReportedServer, report_servers
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
from kube_base.types.ip_addresses import bracketed
from kube_base.types.objects import Object

_SERVICE_LABEL = "kubernetes.io/service-name"
_TOPOLOGY_MODE = "service.kubernetes.io/topology-mode"
ATTACHED_KINDS = (*LISTED_ROUTE_KINDS, *KUBE_APISERVER_KINDS)
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
    failures: tuple[ExplainedFailure, ...] = ()
    """Failed requests since the starts of the data planes, if their metrics were read."""

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
    servers: tuple[ReportedServer, ...] = ()
    """Kube-apiservers of an UpstreamCluster."""
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
    attachments = report_attachments(objects)
    slices = tuple(objects.of_kind("EndpointSlice"))
    endpoints, ports = _endpoints(slices), ServicePorts(slices)
    services = {name_parts(item): item for item in objects.of_kind("Service")}
    sets = tuple(objects.of_kind("ListenerSet"))
    result = [_class(item) for item in objects.of_kind("GatewayClass")]
    result += [_gateway(item, sets) for item in objects.of_kind("Gateway")]
    for kind in ATTACHED_KINDS:
        for item in objects.of_kind(kind):
            backends = _backends(item, services, endpoints, ports)
            result.append(_attached(item, attachments[object_name(item)], tuple(backends)))
    known = {"GatewayClass", "Gateway", *ATTACHED_KINDS}
    others = [resource.kind for resource in combined.KINDS.with_status]
    for kind in (*others, "ExternalLoadBalancer"):
        if kind not in known:
            known.add(kind)
            result += [_other(item) for item in objects.of_kind(kind)]
    return (*result, *(_pod(pod) for pod in objects.pods))


def _reported(
    item: Object, problems: Iterable[ReportedProblem], **fields: object
) -> ReportedObject:
    namespace, name = name_parts(item)
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


def _gateway(item: Object, sets: Iterable[Object]) -> ReportedObject:
    status = item.get("status") or {}
    problems = _conditions(item)
    if condition_status(status.get("conditions"), "Programmed")[0] == "Unknown" and not problems:
        class_name = item["spec"].get("gatewayClassName")
        text = f"{object_name(item)}: no status yet: no controller manages {class_name}"
        problems = [_problem(text, NO_CONTROLLER)]
    name = "/".join(name_parts(item))
    listeners = [*_listeners(item, "")]
    for listener_set in sets:
        if owner_of(listener_set) == name:
            listeners += _listeners(listener_set, f"{'/'.join(name_parts(listener_set))}/")
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


def _attached(
    item: Object, attachment: ReportedAttachment, backends: tuple[ReportedBackend, ...]
) -> ReportedObject:
    """Return a route or a kube-apiserver."""
    spec, status = item.get("spec") or {}, item.get("status") or {}
    is_route = item["kind"] in LISTED_ROUTE_KINDS
    entries = status.get("parents") or [{}]
    state: dict[str, str] = {}
    for kind in ("Accepted", "ResolvedRefs"):
        values = [condition_status(entry.get("conditions"), kind)[0] for entry in entries]
        state[kind] = next((value for value in values if value != "True"), "True")
    problems = _conditions(item)
    if attachment.problem and not any(problem.type == "Accepted" for problem in problems):
        problems.append(_problem(f"{object_name(item)}: {attachment.problem}", NO_PARENT))
    problems += [
        _problem(
            f"{object_name(item)}: {entry.problem}", NO_PORT if entry.port_problem else NO_ENDPOINTS
        )
        for entry in backends
        if entry.problem
    ]
    of_cluster = item["kind"] == "UpstreamCluster"
    hosts = (status if of_cluster else spec).get("hosts")
    return _reported(
        item,
        problems,
        state=state if is_route else _state(status.get("conditions"), "Programmed"),
        hostnames=(spec.get("hostnames") if is_route else hosts) or (),
        parents=[*attachment.parents],
        gateways=[*attachment.parents.values()],
        backends=msgspec.to_builtins(backends),
        servers=msgspec.to_builtins(report_servers(item) if of_cluster else ()),
    )


def _backends(
    item: Object,
    services: Mapping[tuple[str, str], Object],
    endpoints: Mapping[tuple[str, str], tuple[ReportedEndpoint, ...]],
    service_ports: ServicePorts,
) -> Iterable[ReportedBackend]:
    """Yield the existing Services of an object. Conditions report the missing ones."""
    namespace = item["metadata"].get("namespace", "")
    ports: dict[tuple[str, str], list[int]] = {}
    for reference in _references(combined.decode_object(item["kind"], item)):
        key = (reference.namespace or namespace, reference.name)
        if reference.kind == "Service" and key in services:
            ports.setdefault(key, []).append(reference.port or 0)
    transport = "UDP" if item["kind"] == "UDPRoute" else "TCP"
    for key, numbers in ports.items():
        problem = service_ports.problem(services[key], numbers, transport)
        yield _backend(services[key], endpoints.get(key, ()), problem)


def _references(decoded: object) -> Iterable[BackendReference]:
    if isinstance(decoded, routes.RouteObject):
        return used_references(decoded)
    if isinstance(decoded, HostedAPIServer):
        service = decoded.spec.service
        return (routes.BackendRef(service.name, port=service.port),)
    return ()


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
    name = "/".join(name_parts(service))
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
    return f"{bracketed(address)}:{ports[0]}"


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
