"""TLS options of listeners, by clients of real proxies."""

from __future__ import annotations

import asyncio
import functools
import os
import ssl
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import rsa

from differential import proxies
from differential.proxies import Runner
from fakes.authority import Authority
from fakes.specified_objects import CLASS, engine_of, key_pair_secret, service, serving_objects
from gatehouse.compiler.backends import nginx
from gatehouse.compiler.frontends import combined
from gatehouse.compiler.ir import http as ir

pytestmark = pytest.mark.process

RUNNERS = [
    pytest.param(proxies.with_nginx, id="nginx"),
    pytest.param(proxies.with_envoy, id="envoy"),
]
GCM, CHACHA = "ECDHE-RSA-AES256-GCM-SHA384", "ECDHE-RSA-CHACHA20-POLY1305"
WEAK = "AES128-SHA"
PROTOCOLS, CIPHERS = "nginx.org/ssl-protocols", "nginx.org/ssl-ciphers"
PREFERENCE = "nginx.org/ssl-prefer-server-ciphers"
OLD, NEW = ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3


def listener(name: str, port: int = 8443, protocol: str = "HTTPS", **options: str) -> str:
    named = "".join(f'nginx.org/ssl-{key.replace("_", "-")}: "{value}", '
                    for key, value in options.items())  # fmt: skip
    hostname = "" if name == "any" else f"hostname: {name}.test, "
    return (
        f"  - {{name: {name}-{port}, port: {port}, protocol: {protocol}, {hostname}"
        f"tls: {{certificateRefs: [{{name: pair}}], options: {{{named}}}}}}}\n"
    )


def gateway(*listeners: str) -> str:
    return f"""
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {{name: gw}}
spec:
  gatewayClassName: c
  allowedListeners: {{namespaces: {{from: Same}}}}
  listeners:
  - {{name: http, port: 8080, protocol: HTTP}}
{"".join(listeners)}
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {{name: r}}
spec:
  parentRefs: [{{name: gw}}, {{kind: ListenerSet, name: set}}]
  rules: [{{filters: [{{type: RequestRedirect, requestRedirect: {{hostname: to.test}}}}]}}]
---
apiVersion: gateway.networking.k8s.io/v1
kind: TLSRoute
metadata: {{name: t}}
spec:
  parentRefs: [{{name: gw, port: 8444}}]
  hostnames: ["*.test"]
  rules: [{{backendRefs: [{{name: echo, port: 80}}]}}]
"""


def listener_set(*listeners: str) -> str:
    return f"""
apiVersion: gateway.networking.k8s.io/v1
kind: ListenerSet
metadata: {{name: set}}
spec:
  parentRef: {{name: gw}}
  listeners:
{"".join(listeners)}
"""


def pair(directory: Path) -> str:
    key = rsa.generate_private_key(65537, 2048)
    files = Authority(directory).issue("pair", x509.DNSName("*.test"), key=key)
    return key_pair_secret("pair", files)


async def negotiated(
    address: str,
    name: str,
    version: ssl.TLSVersion | None = None,
    ciphers: str = f"{CHACHA}:{GCM}",
    port: int = 8443,
) -> tuple[str, str] | None:
    """Return version and cipher suite of a connection with an answer; None if there is none."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    if version is not None:
        context.minimum_version = context.maximum_version = version
    context.set_ciphers(ciphers)
    try:
        reader, writer = await asyncio.open_connection(
            address, port, ssl=context, server_hostname=f"{name}.test"
        )
        tls = writer.get_extra_info("ssl_object")
        writer.write(f"GET / HTTP/1.1\r\nHost: {name}.test\r\n\r\n".encode())
        answer = await reader.read(1)
        writer.close()
    except (ssl.SSLError, ConnectionError):
        return None
    return (tls.version(), tls.cipher()[0]) if answer else None


LISTENERS = (
    listener("any"),
    listener("new", protocols="TLSv1.3"),
    listener("old", protocols="TLSv1.2", ciphers=f"{GCM}:{CHACHA}", prefer_server_ciphers="on"),
    listener("client", ciphers=f"{GCM}:{CHACHA}", prefer_server_ciphers="off"),
    listener("weak", protocols="TLSv1.2", ciphers=f"{WEAK}:!MD5"),
)
EXPECTED = {
    ("any", OLD): "TLSv1.2", ("any", NEW): "TLSv1.3",
    ("new", OLD): None, ("new", NEW): "TLSv1.3", ("new", None): "TLSv1.3",
    ("old", OLD): "TLSv1.2", ("old", NEW): None, ("old", None): "TLSv1.2",
}  # fmt: skip


@pytest.mark.parametrize("runner", RUNNERS)
async def test_each_listener_of_a_port_has_its_own_versions_and_ciphers(
    runner: Runner, tmp_path: Path
) -> None:
    objects = (CLASS.split("---")[0], gateway(*LISTENERS), pair(tmp_path))
    async with serving_objects(runner, tmp_path, *objects) as proxy:
        results = {key: await negotiated(proxy.address, *key) for key in EXPECTED}
        assert {key: result and result[0] for key, result in results.items()} == EXPECTED
        # The client prefers ChaCha20.
        assert results["old", OLD] == ("TLSv1.2", GCM)
        assert await negotiated(proxy.address, "client", OLD) == ("TLSv1.2", CHACHA)
        # A listener without options does not offer the suites of another one, and vice versa.
        assert await negotiated(proxy.address, "weak", OLD) is None
        assert await negotiated(proxy.address, "weak", OLD, WEAK) == ("TLSv1.2", WEAK)
        assert await negotiated(proxy.address, "old", OLD, WEAK) is None


@pytest.mark.parametrize("runner", RUNNERS)
async def test_listener_sets_do_not_change_the_tls_of_other_listeners(
    runner: Runner, tmp_path: Path
) -> None:
    own = gateway(listener("any", protocols="TLSv1.3"), listener("old", protocols="TLSv1.2"))
    foreign = listener_set(
        listener("weak", protocols="TLSv1.2", ciphers=WEAK),
        # Not served: the value is invalid.
        listener("bad", protocols="TLSv1.2", ciphers="HIGH; }"),
    )
    objects = (CLASS.split("---")[0], own, foreign, pair(tmp_path))
    async with serving_objects(runner, tmp_path, *objects) as proxy:
        expected = {
            ("any", OLD): None, ("any", NEW): "TLSv1.3",
            ("old", OLD): "TLSv1.2", ("old", NEW): None,
            # Served by the listener for all hostnames.
            ("bad", OLD): None, ("bad", NEW): "TLSv1.3",
        }  # fmt: skip
        results = {key: await negotiated(proxy.address, *key) for key in expected}
        assert {key: result and result[0] for key, result in results.items()} == expected
        assert await negotiated(proxy.address, "weak", OLD, WEAK) == ("TLSv1.2", WEAK)


STREAMS = (
    listener("new", 8444, "TLS", protocols="TLSv1.3"),
    listener("old", 8444, "TLS", protocols="TLSv1.2", ciphers=GCM),
    listener("some", 8444, "TLS"),
)


async def _echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(await reader.read(1))
    await writer.drain()
    writer.close()


@pytest.mark.parametrize("runner", RUNNERS)
async def test_tls_listeners_have_their_own_versions_and_ciphers(
    runner: Runner, tmp_path: Path
) -> None:
    async with await asyncio.start_server(_echo, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        backend = service("echo", ir.Endpoint("127.0.0.1", port))
        objects = (CLASS.split("---")[0], gateway(*STREAMS), pair(tmp_path), backend)
        async with serving_objects(runner, tmp_path, *objects) as proxy:
            expected = {
                ("new", OLD): None, ("new", NEW): "TLSv1.3",
                ("old", OLD): "TLSv1.2", ("old", NEW): None,
                ("some", OLD): "TLSv1.2", ("some", NEW): "TLSv1.3",
            }  # fmt: skip
            results = {key: await negotiated(proxy.address, *key, port=8444) for key in expected}
            assert {key: result and result[0] for key, result in results.items()} == expected
            assert await negotiated(proxy.address, "old", OLD, CHACHA, port=8444) is None


@pytest.mark.parametrize("default", ["any", "new"])
async def test_older_nginx_closes_connections_below_the_versions_of_a_listener(
    default: str, tmp_path: Path
) -> None:
    binary = os.environ.get("GATEHOUSE_TEST_NGINX")
    if binary is None:
        pytest.skip("GATEHOUSE_TEST_NGINX names no NGINX before 1.29.2")
    runner = functools.partial(proxies.with_nginx, version="1.22.1", binary=binary)
    other = "new" if default == "any" else "some"
    listeners = {
        "any": (listener("any"), listener("new", protocols="TLSv1.3")),
        "new": (listener("any", protocols="TLSv1.3"), listener("some")),
    }[default]
    objects = (CLASS.split("---")[0], gateway(*listeners), pair(tmp_path))
    strict, free = ("new", "any") if default == "any" else ("any", other)
    async with serving_objects(runner, tmp_path, *objects) as proxy:
        expected = {
            (strict, OLD): None, (strict, NEW): "TLSv1.3",
            (free, OLD): "TLSv1.2", (free, NEW): "TLSv1.3",
        }  # fmt: skip
        results = {key: await negotiated(proxy.address, *key) for key in expected}
        assert {key: result and result[0] for key, result in results.items()} == expected


async def test_older_nginx_closes_streams_below_the_versions_of_a_listener(
    tmp_path: Path,
) -> None:
    runner = functools.partial(proxies.with_nginx, version="1.27.0")
    async with await asyncio.start_server(_echo, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        backend = service("echo", ir.Endpoint("127.0.0.1", port))
        listeners = gateway(STREAMS[0], STREAMS[2])
        objects = (CLASS.split("---")[0], listeners, pair(tmp_path), backend)
        async with serving_objects(runner, tmp_path, *objects) as proxy:
            expected = {
                ("new", OLD): None, ("new", NEW): "TLSv1.3",
                ("some", OLD): "TLSv1.2", ("some", NEW): "TLSv1.3",
            }  # fmt: skip
            results = {key: await negotiated(proxy.address, *key, port=8444) for key in expected}
            assert {key: result and result[0] for key, result in results.items()} == expected


def test_older_nginx_reports_versions_that_a_listener_cannot_exclude(tmp_path: Path) -> None:
    engine = engine_of(CLASS.split("---")[0], gateway(*LISTENERS), pair(tmp_path))
    with engine.compile() as ask:
        configuration = ask(combined.compile_combined_gateway, ("Gateway", "ns", "gw"))
    assert configuration is not None
    reasons = {}
    for version in ("1.29.1", "1.29.2"):
        generator = nginx.NginxGenerator(nginx.NginxCapabilities.parse(version))
        unsupported = generator.generate(configuration).unsupported
        reasons[version] = {(part.served, part.reason) for part in unsupported}
    assert reasons["1.29.2"] == set()
    message = "listeners without TLSv1.3 accept it too, as other listeners of the port have it"
    assert reasons["1.29.1"] == {(True, f"port 8443: {message}: requires NGINX 1.29.2 or newer")}
