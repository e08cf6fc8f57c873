"""The Service `kubernetes` in the namespace `default`, with the address of the API server.

It has the form that kube-apiserver gives it. Of several servers over one storage, the leader
writes its own address.
"""

from __future__ import annotations

import ipaddress

from kube_api_server.controllers.context import ControllerContext
from kube_api_server.controllers.reconcile_queue import ReconcileQueue
from kube_api_server.errors import StatusError
from kube_api_server.storage.entries import StoreEvent
from kube_base.types import ip_addresses
from kube_base.types.objects import Object

NAMESPACE, NAME = "default", "kubernetes"
_MANAGER = "kube-apiserver"
_HTTPS = 443
_INVALID = 422
_SKIP_MIRROR = "endpointslice.kubernetes.io/skip-mirror"

_KINDS = (("", "services"), ("", "endpoints"), ("discovery.k8s.io", "endpointslices"))


class KubernetesService:
    """Reconciles the Service, its Endpoints and its EndpointSlice with the server's address."""

    def __init__(self, context: ControllerContext, service_cidr: str) -> None:
        self._context = context
        network = ipaddress.ip_network(service_cidr)
        self._cluster_ip = str(network[min(1, network.num_addresses - 1)])
        self._address: tuple[str, int] | None = None
        keys = {context.kind(*kind).key(NAMESPACE, NAME) for kind in _KINDS}
        self.queue = ReconcileQueue("kubernetes-service", self._work, lambda: [NAME])

        def changed(event: StoreEvent) -> None:
            if event.key in keys:
                self.queue.add(NAME)

        for kind in _KINDS:
            context.store.listen(context.kind(*kind).prefix, changed)

    def advertise(self, host: str, port: int) -> None:
        """Set the address on which this server listens. A name or a wildcard means loopback."""
        self._address = advertised_address(host), port
        self.queue.add(NAME)

    async def _work(self, _: str) -> None:
        if self._address is None:
            return
        host, port = self._address
        await self._write("", "services", await self._service(port))
        await self._write("", "endpoints", _endpoints(host, port))
        await self._write("discovery.k8s.io", "endpointslices", _endpoint_slice(host, port))

    async def _service(self, port: int) -> Object:
        """Create the Service if it is missing. Return its desired state."""
        context = self._context
        service = _service(port)
        if context.store.latest(context.kind("", "services").key(NAMESPACE, NAME)) is None:
            with_address = {**service, "spec": {**service["spec"], "clusterIP": self._cluster_ip}}
            try:
                await context.create("", "services", with_address, _MANAGER)
            except StatusError as error:
                # Another Service has the first address.
                if error.code != _INVALID:
                    raise
                await context.create("", "services", service, _MANAGER)
        return service

    async def _write(self, group: str, plural: str, desired: Object) -> None:
        context = self._context
        served = context.kind(group, plural)
        current = context.store.latest(served.key(NAMESPACE, NAME))
        if current is None:
            await context.create(group, plural, desired, _MANAGER)
        elif _merged(current.value, desired) != current.value:
            call = context.call(served, desired, _MANAGER)
            await context.verbs.change(call, lambda obj: _merged(obj, desired))


def advertised_address(host: str) -> str:
    """Return the address under which data planes of this machine reach a listener on `host`."""
    try:
        address = ip_addresses.ip_address(host.strip("[]"))
    except ValueError:
        return "127.0.0.1"
    if address.is_unspecified:
        return "127.0.0.1" if address.version == 4 else "::1"
    return str(address)


def _merged(current: Object, desired: Object) -> Object:
    """Return the current object with the desired labels and fields. Other fields stay."""
    labels = {**(current["metadata"].get("labels") or {}), **desired["metadata"]["labels"]}
    result = {**current, "metadata": {**current["metadata"], "labels": labels}}
    for key, value in desired.items():
        if key == "spec":
            result[key] = {**(current.get(key) or {}), **value}
        elif key != "metadata":
            result[key] = value
    return result


def _metadata(labels: dict[str, str]) -> Object:
    return {"name": NAME, "namespace": NAMESPACE, "labels": labels}


def _service(port: int) -> Object:
    listener = {"name": "https", "protocol": "TCP", "port": _HTTPS, "targetPort": port}
    return {
        "metadata": _metadata({"component": "apiserver", "provider": "kubernetes"}),
        "spec": {"type": "ClusterIP", "ports": [listener]},
    }


def _port(port: int) -> Object:
    return {"name": "https", "port": port, "protocol": "TCP"}


def _endpoints(host: str, port: int) -> Object:
    return {
        "metadata": _metadata({_SKIP_MIRROR: "true"}),
        "subsets": [{"addresses": [{"ip": host}], "ports": [_port(port)]}],
    }


def _endpoint_slice(host: str, port: int) -> Object:
    family = f"IPv{ip_addresses.ip_address(host).version}"
    return {
        "metadata": _metadata({"kubernetes.io/service-name": NAME}),
        "addressType": family,
        "endpoints": [{"addresses": [host], "conditions": {"ready": True}}],
        "ports": [_port(port)],
    }
