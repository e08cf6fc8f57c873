"""TCPRoutes on TLS listeners: the proxy terminates TLS and forwards the bytes."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from cryptography import x509

from differential.proxies import PORT, Runner
from fakes import patience
from fakes.authority import Authority
from fakes.envoy_serving import listening
from fakes.loopback import loopback_network
from fakes.one_route import GATEWAY, Object, engine
from fakes.served_objects import RUNNERS
from gatehouse.compiler.frontends import gateway_api
from gatehouse.incremental.query import Engine, Key

TLS_PORT = 8443
TCP_ROUTE: Key = ("TCPRoute", "n", "t")


def tls_listener(name: str, **fields: Any) -> Object:
    """Return a listener that terminates TLS unless ``fields`` says something else."""
    tls = {"mode": "Terminate", "certificateRefs": [{"name": "certificate"}]}
    return {"name": name, "port": TLS_PORT, "protocol": "TLS", "tls": tls} | fields


def world(listeners: list[Object], *routes: tuple[Key, str, list[str]]) -> Engine:
    """Return an engine with L4 routes. Each has its key, its Service and its hostnames."""
    http = {"name": "l", "port": PORT, "protocol": "HTTP"}
    spec = {"gatewayClassName": "c", "listeners": [http, *listeners]}
    ports = [{"name": "p", "port": 80, "protocol": "TCP"}]
    result = engine("HTTPRoute", [], (GATEWAY, spec), (("Service", "n", "two"), {"ports": ports}))
    for key, service, hostnames in routes:
        route: Object = {
            "parentRefs": [{"name": "gw", "namespace": "n", "port": TLS_PORT}],
            "rules": [{"backendRefs": [{"name": service, "port": 80}]}],
        } | ({"hostnames": hostnames} if hostnames else {})
        metadata = {"name": key[2], "namespace": key[1], "creationTimestamp": "2026-01-01"}
        raw = {"metadata": metadata, "spec": route}
        result.commit({key: gateway_api.decode_gateway_api_object(key[0], raw)})
    return result


def conditions(engine: Engine, key: Key) -> dict[str, str]:
    """Return reason and message of each condition of a route."""
    with engine.compile() as ask:
        outcome = ask(gateway_api.gateway_api_status, key)
        assert outcome is not None
        status = gateway_api.GATEWAY_API_FRONT_END.merge_status(None, outcome, "T")
    assert status is not None
    return {
        condition["type"]: f"{condition['reason']}: {condition['message']}"
        for parent in status["parents"]
        for condition in parent["conditions"]
    }


def add_certificate(engine: Engine, directory: Path) -> Path:
    """Add the Secret of the listener. Return the CA certificates for its clients."""
    authority = Authority(directory)
    certificate, key = authority.issue("server", x509.DNSName("a.example"))
    pairs = {"tls.crt": certificate, "tls.key": key}
    data = {name: base64.b64encode(path.read_bytes()).decode() for name, path in pairs.items()}
    metadata = {"name": "certificate", "namespace": "n"}
    raw = {"metadata": metadata, "type": "kubernetes.io/tls", "data": data}
    secret: Key = ("Secret", "n", "certificate")
    engine.commit({secret: gateway_api.decode_gateway_api_object("Secret", raw)})
    return authority.file


def add_endpoint(engine: Engine, service: str, port: int) -> None:
    """Add the only endpoint of a Service."""
    labels = {"kubernetes.io/service-name": service}
    raw = {
        "metadata": {"name": f"{service}-1", "namespace": "n", "labels": labels},
        "addressType": "IPv4",
        "ports": [{"name": "p", "port": port}],
        "endpoints": [{"addresses": ["127.0.0.1"]}],
    }
    key: Key = ("EndpointSlice", "n", f"{service}-1")
    engine.commit({key: gateway_api.decode_gateway_api_object("EndpointSlice", raw)})


@contextlib.asynccontextmanager
async def naming(text: bytes) -> AsyncIterator[int]:
    """Run a backend that answers each line with ``text`` and the line. Yield its port."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := await reader.readline():
            writer.write(text + line)

    async with listening(answer) as endpoint:
        yield endpoint.port


async def line_of(address: str, trust: Path, server_name: str) -> bytes:
    """Return the answer to a line in a TLS connection; empty if there is no connection."""
    context = ssl.create_default_context(cafile=str(trust))
    context.check_hostname = False
    try:
        reader, writer = await asyncio.open_connection(
            address, TLS_PORT, ssl=context, server_hostname=server_name
        )
        writer.write(b"line\n")
        async with patience.limit():
            answer = await reader.readline()
    except (ConnectionError, ssl.SSLError):
        return b""
    writer.close()
    return answer


@pytest.mark.process
@pytest.mark.parametrize("runner", RUNNERS)
async def test_tcp_route_on_tls_listener_gets_the_bytes_in_the_connection(
    runner: Runner, tmp_path: Path
) -> None:
    compiled = world([tls_listener("tls", hostname="a.example")], (TCP_ROUTE, "s", []))
    trust = add_certificate(compiled, tmp_path)
    async with naming(b"s ") as port:
        add_endpoint(compiled, "s", port)
        with compiled.compile() as ask:
            gateway = ask(gateway_api.compile_gateway, GATEWAY)
        assert gateway is not None
        address = f"{loopback_network()}.1"
        bound = msgspec.structs.replace(gateway, bind_address=address)
        async with runner(bound, tmp_path):
            assert await line_of(address, trust, "a.example") == b"s line\n"
            assert await line_of(address, trust, "b.example") == b""
    assert conditions(compiled, TCP_ROUTE)["Accepted"].startswith("Accepted")


def test_tls_route_precedes_a_tcp_route_of_the_same_hostname(tmp_path: Path) -> None:
    """A TCPRoute attaches to every TLS listener of its Gateway without naming it."""
    tls_route: Key = ("TLSRoute", "n", "z")
    routes = [(TCP_ROUTE, "s", []), (tls_route, "two", ["a.example"])]
    compiled = world([tls_listener("tls", hostname="a.example")], *routes)
    add_certificate(compiled, tmp_path)
    with compiled.compile() as ask:
        gateway = ask(gateway_api.compile_gateway, GATEWAY)
    assert gateway is not None
    (listener,) = gateway.l4_listeners
    (host,) = listener.hosts
    assert host.origin.kind == "TLSRoute"


REFUSALS = [
    ([tls_listener("tls", tls={"mode": "Passthrough"})], TCP_ROUTE,
     "listener tls does not allow routes of kind TCPRoute, only TLSRoute"),
    ([tls_listener("tls", allowedRoutes={"kinds": [{"kind": "TLSRoute"}]})], TCP_ROUTE,
     "listener tls does not allow routes of kind TCPRoute, only TLSRoute"),
    ([tls_listener("tls")], ("TCPRoute", "other", "t"),
     "listener tls does not allow TCPRoute from namespace other"),
]  # fmt: skip


@pytest.mark.parametrize(("listeners", "key", "message"), REFUSALS)
def test_refusal_of_a_route_names_kind_or_namespace(
    listeners: list[Object], key: Key, message: str
) -> None:
    accepted = conditions(world(listeners, (key, "s", [])), key)["Accepted"]
    assert accepted.startswith("NotAllowedByListeners")
    assert message in accepted


def test_kind_that_a_tls_mode_does_not_support_is_named(tmp_path: Path) -> None:
    kinds = {"kinds": [{"kind": "TCPRoute"}]}
    listener = tls_listener("tls", tls={"mode": "Passthrough"}, allowedRoutes=kinds)
    compiled = world([listener], (TCP_ROUTE, "s", []))
    with compiled.compile() as ask:
        outcome = ask(gateway_api.gateway_api_status, GATEWAY)
        assert outcome is not None
        status = gateway_api.GATEWAY_API_FRONT_END.merge_status(None, outcome, "T")
    assert status is not None
    (listener_status,) = [item for item in status["listeners"] if item["name"] == "tls"]
    assert "TCPRoute not supported for protocol TLS in mode Passthrough" in str(listener_status)
