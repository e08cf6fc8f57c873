"""The real nlk 0.3 and 1.2, and Gatehouse, reach the same hosts in each TLS mode.

Each has hosts of its own, which differ in the CA of their certificate and in whether they request
one from clients.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import ssl
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509

from fakes import peers
from fakes.authority import Authority
from fakes.hosts import Host, plus, running_host
from fakes.load_balancer_world import World, nlk, nlk_file, node, port, secret, service
from fakes.nlk import cluster, create, last_lines, running_nlk
from gatehouse.apis.resources import SECRETS
from gatehouse.compiler.backends.nginx_plus import generate_upstreams
from gatehouse.compiler.frontends import external_load_balancer as front
from gatehouse.compiler.ir.load_balancing import LoadBalancer

pytestmark = [pytest.mark.process, pytest.mark.long, pytest.mark.peers]

WEB = "http/web"
SERVERS = ["10.0.0.1:30080"]
LOCAL = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
NODE = node("a", "10.0.0.1")
ANNOTATIONS = {"nginx.com/nginxaas": "nginxaas"}

SYSTEM, PRIVATE, UNKNOWN = "system", "private", "unknown"
"""Hosts with a certificate of a CA of the system, of the configured CA, and of another one."""
SYSTEM_MUTUAL, PRIVATE_MUTUAL = "system-mutual", "private-mutual"
"""Such hosts that request a client certificate."""
SERVED_BY_0_3 = {
    "no-tls": {SYSTEM, PRIVATE, UNKNOWN},
    "ca-tls": {SYSTEM},
    "ca-mtls": {SYSTEM, SYSTEM_MUTUAL},
    "ss-tls": {PRIVATE},
    "ss-mtls": {PRIVATE, PRIVATE_MUTUAL},
}
SERVED_BY_1_2 = {
    "no-tls": {SYSTEM, PRIVATE, UNKNOWN},
    "skip-verify-tls": {SYSTEM, PRIVATE, UNKNOWN},
    "ca-tls": {SYSTEM},
    "": {SYSTEM},
    "unknown-mode": {SYSTEM},
}


class Site:
    """Certificates of all hosts, of the client, and of the system."""

    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._system, self._private = (Authority(directory, name) for name in (SYSTEM, PRIVATE))
        self._unknown = Authority(directory, UNKNOWN)
        # Both programs read it in place of the certificates of the machine.
        monkeypatch.setenv("SSL_CERT_FILE", str(self._system.file))
        certificate, key = self._private.issue("client")
        self.secrets = (
            secret("authority", tls_crt=self._private.pem),
            secret("client", tls_crt=certificate.read_bytes(), tls_key=key.read_bytes()),
        )

    def servers(self) -> dict[str, ssl.SSLContext]:
        """Return the TLS context of each host."""
        authorities = {
            SYSTEM: self._system,
            SYSTEM_MUTUAL: self._system,
            PRIVATE: self._private,
            PRIVATE_MUTUAL: self._private,
            UNKNOWN: self._unknown,
        }
        return {name: self._server(name, issuer) for name, issuer in authorities.items()}

    def _server(self, name: str, issuer: Authority) -> ssl.SSLContext:
        context = issuer.server(f"host-{name}", LOCAL)
        if name in (SYSTEM_MUTUAL, PRIVATE_MUTUAL):
            context.verify_mode = ssl.CERT_REQUIRED
            context.load_verify_locations(self._private.file)
        return context


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    return Site(tmp_path, monkeypatch)


def serving(hosts: dict[str, Host]) -> set[str]:
    """Return the hosts that have the servers."""
    return {name for name, host in hosts.items() if host.held(WEB) == SERVERS}


def url_of(host: Host) -> str:
    return host.worker.knowledge._url


def compiled(site: Site, config: Any, app: Any) -> LoadBalancer:
    return World(NODE, app, config, *site.secrets).plus(front.NLK_CONFIG_KEY)


async def served_by_gatehouse(site: Site, config: Any, app: Any) -> set[str]:
    """Return the hosts that Gatehouse fills. The others have an error about TLS."""
    balancer = compiled(site, config, app)
    hosts = {}
    async with contextlib.AsyncExitStack() as stack:
        for name, tls in site.servers().items():
            running = running_host(plus(WEB), tls, balancer.hosts[0].tls)
            hosts[name] = await stack.enter_async_context(running)
            hosts[name].worker.set_desired(generate_upstreams(balancer).desired)
            await asyncio.sleep(0)
            await hosts[name].pass_(0.5)
        errors = {name for name, host in hosts.items() if host.reports[-1].error}
        assert errors == hosts.keys() - serving(hosts)
        return serving(hosts)


async def served_by_nlk(version: str, site: Site, directory: Path, mode: str, app: Any) -> set[str]:
    """Return the hosts that nlk fills. It tried all others."""
    hosts = {}
    async with contextlib.AsyncExitStack() as stack:
        for name, tls in site.servers().items():
            hosts[name] = await stack.enter_async_context(running_host(plus(WEB), tls))
        urls = [url_of(host) for host in hosts.values()]
        config, text = configuration(version, mode, urls)
        server, client = await stack.enter_async_context(cluster(directory, NODE, config))
        log = await stack.enter_async_context(running_nlk(version, server, client, directory, text))

        async def logged(text: str) -> None:
            await hosts[SYSTEM].until(lambda: text in log.read_text())

        if version == "nlk-0.3":
            # Only then it has its log level, and logs the Secrets.
            await logged("retrieved nlk-config ConfigMap")
        for raw in site.secrets:
            await client.create(SECRETS, {**raw, "type": "Opaque"})
        if version == "nlk-0.3":
            # Before it has read them, nlk 0.3 verifies nothing.
            await logged("certificates (2)")
        await create(client, app)

        def tried() -> bool:
            text = log.read_text()
            rest = (host for name, host in hosts.items() if name not in serving(hosts))
            return bool(serving(hosts)) and all(failed(text, host) for host in rest)

        try:
            await hosts[SYSTEM].until(tried)
        except TimeoutError:
            raise AssertionError(f"{serving(hosts)}: {last_lines(log)}") from None
        return serving(hosts)


def failed(log: str, host: Host) -> bool:
    """Tell whether a log has an error about a request to a host: such an error quotes the URL."""
    return f'Get \\"{url_of(host)}/' in log


def configuration(version: str, mode: str, urls: list[str]) -> tuple[Any, str]:
    """Return the ConfigMap of a version of nlk, and the configuration file in it."""
    if version == "nlk-0.3":
        config = nlk(
            nginx_hosts=",".join(urls),
            tls_mode=mode,
            ca_certificate="authority",
            client_certificate="client",
            log_level="debug",
        )
        return config, ""
    text = f"nginx-hosts: {urls}\ntls-mode: '{mode}'\nlog-level: debug\n"
    return nlk_file(text), text


@pytest.mark.parametrize(("mode", "expected"), SERVED_BY_0_3.items(), ids=SERVED_BY_0_3)
async def test_nlk_0_3_and_gatehouse_reach_the_same_hosts(
    site: Site, tmp_path: Path, mode: str, expected: set[str]
) -> None:
    peers.binary("nlk-0.3", "nlk")
    app = service("app", port("nlk-web", 30080))
    assert await served_by_nlk("nlk-0.3", site, tmp_path, mode, app) == expected
    config, _ = configuration("nlk-0.3", mode, ["https://127.0.0.1:9/api"])
    assert await served_by_gatehouse(site, config, app) == expected


@pytest.mark.parametrize(("mode", "expected"), SERVED_BY_1_2.items(), ids=SERVED_BY_1_2)
async def test_nlk_1_2_and_gatehouse_reach_the_same_hosts(
    site: Site, tmp_path: Path, mode: str, expected: set[str]
) -> None:
    peers.binary("nlk-1.2.7", "nlk")
    app = service("app", port("http-web", 30080), annotations=ANNOTATIONS)
    assert await served_by_nlk("nlk-1.2.7", site, tmp_path, mode, app) == expected
    config, _ = configuration("nlk-1.2.7", mode, ["https://127.0.0.1:9/api"])
    assert await served_by_gatehouse(site, config, app) == expected
