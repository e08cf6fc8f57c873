"""Envoys with their resources and control planes, on this machine."""

from __future__ import annotations

import asyncio
import contextlib
import json
import subprocess
from collections.abc import AsyncIterator, Callable, Iterable
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import web
from envoy.config.cluster.v3 import cluster_pb2
from envoy.config.core.v3 import address_pb2, config_source_pb2
from envoy.config.endpoint.v3 import endpoint_components_pb2, endpoint_pb2
from envoy.config.listener.v3 import listener_components_pb2, listener_pb2
from envoy.config.route.v3 import route_components_pb2, route_pb2
from envoy.extensions.filters.http.router.v3 import router_pb2
from envoy.extensions.filters.network.http_connection_manager.v3 import (
    http_connection_manager_pb2 as hcm_pb2,
)
from envoy.extensions.transport_sockets.tls.v3 import secret_pb2, tls_pb2

from fakes.agent_control_plane import GATEWAY, ControlPlane
from fakes.durations import be_slow
from gatehouse.dataplane.delivery import DataPlaneReport
from gatehouse.dataplane.origin import Origin
from gatehouse.dataplane.xds.resources import (
    CLUSTER_TYPE_URL,
    ENDPOINTS_TYPE_URL,
    LISTENER_TYPE_URL,
    ROUTES_TYPE_URL,
    SECRET_TYPE_URL,
    ResourceSet,
    XdsResource,
)

ENVOY = Path(__file__).parents[2] / ".venv/bin/envoy"

Address = tuple[str, int]


def _socket(address: Address) -> Any:
    return address_pb2.Address(
        socket_address=address_pb2.SocketAddress(address=address[0], port_value=address[1])
    )


def _ads() -> Any:
    return config_source_pb2.ConfigSource(
        ads=config_source_pb2.AggregatedConfigSource(),
        resource_api_version=config_source_pb2.V3,
    )


def cluster(name: str, *, origins: tuple[Origin, ...] = (), seconds: int = 5) -> XdsResource:
    """Return a cluster with endpoints by ADS and a connect timeout of ``seconds``."""
    message = cluster_pb2.Cluster(
        name=name,
        type=cluster_pb2.Cluster.EDS,
        eds_cluster_config=cluster_pb2.Cluster.EdsClusterConfig(eds_config=_ads()),
    )
    message.connect_timeout.seconds = seconds
    return XdsResource.make(CLUSTER_TYPE_URL, name, message.SerializeToString(), origins=origins)


def bad_cluster(name: str, *, origins: tuple[Origin, ...] = ()) -> XdsResource:
    """A cluster that Envoy refuses for what it means: its address is none."""
    message = cluster_pb2.Cluster(name=name, type=cluster_pb2.Cluster.STATIC)
    message.load_assignment.CopyFrom(_assignment(name, [("no-address", 1)]))
    return XdsResource.make(CLUSTER_TYPE_URL, name, message.SerializeToString(), origins=origins)


def invalid_cluster(name: str, *, origins: tuple[Origin, ...] = ()) -> XdsResource:
    """A cluster that Envoy refuses before it looks at what it means."""
    message = cluster_pb2.Cluster(name=name, type=cluster_pb2.Cluster.EDS)
    message.connect_timeout.seconds = -5
    return XdsResource.make(CLUSTER_TYPE_URL, name, message.SerializeToString(), origins=origins)


def _assignment(name: str, addresses: Iterable[Address]) -> Any:
    hosts = [
        endpoint_components_pb2.LbEndpoint(
            endpoint=endpoint_components_pb2.Endpoint(address=_socket(address))
        )
        for address in addresses
    ]
    locality = endpoint_components_pb2.LocalityLbEndpoints(lb_endpoints=hosts)
    return endpoint_pb2.ClusterLoadAssignment(cluster_name=name, endpoints=[locality])


def endpoints(name: str, *addresses: Address) -> XdsResource:
    """The endpoints of a cluster."""
    return XdsResource.make(
        ENDPOINTS_TYPE_URL, name, _assignment(name, addresses).SerializeToString()
    )


def routes(name: str, *hosts: tuple[str, str]) -> XdsResource:
    """Virtual hosts, each with the cluster that everything of it goes to."""
    configuration = route_pb2.RouteConfiguration(
        name=name,
        virtual_hosts=[
            route_components_pb2.VirtualHost(
                name=domain,
                domains=[domain],
                routes=[
                    route_components_pb2.Route(
                        match=route_components_pb2.RouteMatch(prefix="/"),
                        route=route_components_pb2.RouteAction(cluster=target),
                    )
                ],
            )
            for domain, target in hosts
        ],
    )
    return XdsResource.make(ROUTES_TYPE_URL, name, configuration.SerializeToString())


def secret(name: str, cert: bytes, key: bytes, *, origins: tuple[Origin, ...] = ()) -> XdsResource:
    """A certificate and its key."""
    message = secret_pb2.Secret(name=name)
    message.tls_certificate.certificate_chain.inline_bytes = cert
    message.tls_certificate.private_key.inline_bytes = key
    body = message.SerializeToString()
    return XdsResource.make(SECRET_TYPE_URL, name, body, origins=origins, secret=True)


def listener(name: str, port: int, route_name: str, certificate: str = "") -> XdsResource:
    """Return an HTTP listener with its routes and its certificate by ADS."""
    manager = hcm_pb2.HttpConnectionManager(
        stat_prefix=name,
        rds=hcm_pb2.Rds(config_source=_ads(), route_config_name=route_name),
    )
    router = manager.http_filters.add(name="envoy.filters.http.router")
    router.typed_config.Pack(router_pb2.Router())
    chain = listener_components_pb2.Filter(name="envoy.filters.network.http_connection_manager")
    chain.typed_config.Pack(manager)
    message = listener_pb2.Listener(
        name=name,
        address=_socket(("127.0.0.1", port)),
        filter_chains=[listener_components_pb2.FilterChain(filters=[chain])],
    )
    if certificate:
        context = tls_pb2.DownstreamTlsContext()
        context.common_tls_context.tls_certificate_sds_secret_configs.add(
            name=certificate, sds_config=_ads()
        )
        socket = message.filter_chains[0].transport_socket
        socket.name = "envoy.transport_sockets.tls"
        socket.typed_config.Pack(context)
    return XdsResource.make(LISTENER_TYPE_URL, name, message.SerializeToString())


def website(port: int, backend: Address, *more: XdsResource) -> ResourceSet:
    """Everything for one port that leads to one backend, and ``more``."""
    return ResourceSet(
        [
            cluster("web"),
            endpoints("web", backend),
            listener("http", port, "http"),
            routes("http", ("*", "web")),
            *more,
        ]
    )


@contextlib.asynccontextmanager
async def backend(
    text: str, wait: float = 0.0, on_request: Callable[[], object] = lambda: None
) -> AsyncIterator[Address]:
    """Run a backend that answers every request with ``text``, after ``wait`` seconds."""

    async def answer(_request: web.Request) -> web.Response:
        on_request()
        await be_slow(wait)
        return web.Response(text=text)

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield ("127.0.0.1", runner.addresses[0][1])
    finally:
        await runner.cleanup()


class EnvoyControlPlane(ControlPlane):
    """A control plane that tells Envoys."""

    def publish(self, resources: ResourceSet) -> None:
        self.server.envoys.publish(GATEWAY, resources)

    def report(self) -> DataPlaneReport:
        return self.server.envoys.report(GATEWAY)

    async def served(self, resources: ResourceSet) -> DataPlaneReport:
        """Publish ``resources`` and wait until every instance confirmed them."""
        self.publish(resources)
        return await self.until(lambda report: report.programmed)


async def get(port: int, host: str = "any", path: str = "/") -> tuple[int, str]:
    """Ask what listens on ``port``."""
    url = f"http://127.0.0.1:{port}{path}"
    async with (
        aiohttp.ClientSession() as client,
        client.get(url, headers={"host": host}) as response,
    ):
        return response.status, await response.text()


def bootstrap(directory: Path, plane: ControlPlane, token: str, *, delta: bool) -> Path:
    """Write the bootstrap of an Envoy that talks to the control plane itself."""
    trust = {
        "@type": "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext",
        "sni": "control.plane",
        "common_tls_context": {
            # As a client, Envoy offers at most TLS 1.2 by default.
            "tls_params": {"tls_maximum_protocol_version": "TLSv1_3"},
            "validation_context": {"trusted_ca": {"filename": str(plane.cert)}},
        },
    }
    address = {"socket_address": {"address": "127.0.0.1", "port_value": plane.port}}
    protocols = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"
    own = {
        "name": "control-plane",
        "type": "STATIC",
        "load_assignment": {
            "cluster_name": "control-plane",
            "endpoints": [{"lb_endpoints": [{"endpoint": {"address": address}}]}],
        },
        "typed_extension_protocol_options": {
            protocols: {
                "@type": f"type.googleapis.com/{protocols}",
                "explicit_http_config": {"http2_protocol_options": {}},
            }
        },
        "transport_socket": {"name": "envoy.transport_sockets.tls", "typed_config": trust},
    }
    service = {
        "envoy_grpc": {
            "cluster_name": "control-plane",
            "retry_policy": {"retry_back_off": {"base_interval": "0.05s", "max_interval": "0.5s"}},
        },
        "initial_metadata": [{"key": "authorization", "value": f"Bearer {token}"}],
    }
    tree = {
        "node": {"id": "direct", "cluster": "test"},
        "admin": {"address": {"pipe": {"path": str(directory / "admin.sock")}}},
        "static_resources": {"clusters": [own]},
        "dynamic_resources": {
            "ads_config": {
                "api_type": "DELTA_GRPC" if delta else "GRPC",
                "transport_api_version": "V3",
                "grpc_services": [service],
            },
            "cds_config": {"ads": {}, "resource_api_version": "V3"},
            "lds_config": {"ads": {}, "resource_api_version": "V3"},
        },
    }
    path = directory / "bootstrap.json"
    path.write_text(json.dumps(tree))
    return path


def _start(
    directory: Path, plane: ControlPlane, token: str, *, delta: bool
) -> subprocess.Popen[bytes]:
    directory.mkdir(exist_ok=True)
    path = bootstrap(directory, plane, token, delta=delta)
    with (directory / "envoy.log").open("ab") as log:
        return subprocess.Popen(
            [ENVOY, "-c", path, "--disable-hot-restart", "--concurrency", "1"],
            stdout=log,
            stderr=log,
        )


@contextlib.asynccontextmanager
async def direct_envoy(
    directory: Path, plane: ControlPlane, token: str = "good:pod-1", *, delta: bool = True
) -> AsyncIterator[subprocess.Popen[bytes]]:
    """An Envoy without an agent."""
    process = _start(directory, plane, token, delta=delta)
    try:
        yield process
    finally:
        process.kill()
        await asyncio.to_thread(process.wait)
