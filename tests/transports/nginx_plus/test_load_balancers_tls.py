"""TLS connections to hosts, and verification of their certificates."""

from __future__ import annotations

import ipaddress
import ssl
from pathlib import Path

import pytest
from cryptography import x509

from fakes.authority import DAY, Authority
from fakes.hosts import plus, running_host
from gatehouse.compiler.ir.gateway import SecretBytes
from gatehouse.compiler.ir.load_balancing import HostTls

A = "10.0.0.1:30080"
WEB = "http/web"
LOCAL = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))


def served(authority: Authority, *names: x509.GeneralName, ended: bool = False) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*authority.issue("host", *names, ends=-DAY if ended else DAY))
    return context


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


async def outcome(server: ssl.SSLContext, settings: HostTls) -> str:
    """Return why the host could not be used; empty if it could."""
    async with running_host(plus(WEB), tls=server, settings=settings) as host:
        await host.set_desired({WEB: [A]})
        error = host.reports[-1].error
        assert host.held(WEB) == ([] if error else [A])
        return error


async def test_host_with_a_certificate_of_the_configured_ca_is_used(authority: Authority) -> None:
    assert await outcome(served(authority, LOCAL), HostTls(trust=authority.pem)) == ""


async def test_host_with_a_certificate_of_another_ca_is_rejected(
    authority: Authority, tmp_path: Path
) -> None:
    other = Authority(tmp_path, "other")
    error = await outcome(served(authority, LOCAL), HostTls(trust=other.pem))
    assert error.startswith("certificate verification failed: ")
    assert (await outcome(served(authority, LOCAL), HostTls())).startswith(
        "certificate verification failed"
    )


async def test_host_with_another_name_is_rejected_unless_server_name_is_set(
    authority: Authority,
) -> None:
    server = served(authority, x509.DNSName("lb.example"))
    assert "IP address mismatch" in await outcome(server, HostTls(trust=authority.pem))
    expecting = HostTls(trust=authority.pem, server_name="lb.example")
    assert await outcome(server, expecting) == ""


async def test_expired_host_certificate_is_rejected(authority: Authority) -> None:
    error = await outcome(served(authority, LOCAL, ended=True), HostTls(trust=authority.pem))
    assert "certificate has expired" in error


async def test_host_certificate_is_not_verified_when_configured(authority: Authority) -> None:
    assert await outcome(served(authority, ended=True), HostTls(verify=False)) == ""


async def test_client_certificate_is_sent_to_hosts_that_request_it(authority: Authority) -> None:
    server = served(authority, LOCAL)
    server.verify_mode = ssl.CERT_REQUIRED
    server.load_verify_locations(authority.file)
    certificate, key = authority.issue("gatehouse")
    own = HostTls(
        trust=authority.pem, certificate=certificate.read_bytes(), key=SecretBytes(key.read_bytes())
    )
    assert await outcome(server, own) == ""
    assert await outcome(server, HostTls(trust=authority.pem)) != ""


async def test_invalid_certificates_are_reported_and_nothing_is_sent(
    authority: Authority,
) -> None:
    broken = HostTls(trust=authority.pem, certificate=b"nonsense", key=SecretBytes(b"sesame"))
    error = await outcome(served(authority, LOCAL), broken)
    assert error.startswith("TLS configuration: ")
    assert "sesame" not in error
    assert (await outcome(served(authority, LOCAL), HostTls(trust=b"nonsense"))).startswith(
        "TLS configuration: "
    )
