"""Hosts are spoken to over real TLS, and only those that prove who they are."""

from __future__ import annotations

import ipaddress
import ssl
from pathlib import Path

import pytest
from authority import DAY, Authority
from cryptography import x509
from hosts import hosted, plus

from gatehouse.compiler.ir.gateway import SecretBytes
from gatehouse.compiler.ir.load_balancing import Tls

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


async def outcome(server: ssl.SSLContext, settings: Tls) -> str:
    """Why the host could not be spoken to; empty: it could."""
    async with hosted(plus(WEB), tls=server, settings=settings) as host:
        await host.want({WEB: [A]})
        error = host.reports[-1].error
        assert host.held(WEB) == ([] if error else [A])
        return error


async def test_a_host_of_the_named_authority_is_spoken_to(authority: Authority) -> None:
    assert await outcome(served(authority, LOCAL), Tls(trust=authority.pem)) == ""


async def test_a_host_of_another_authority_is_not(authority: Authority, tmp_path: Path) -> None:
    other = Authority(tmp_path, "other")
    error = await outcome(served(authority, LOCAL), Tls(trust=other.pem))
    assert error.startswith("certificate verification failed: ")
    assert (await outcome(served(authority, LOCAL), Tls())).startswith(
        "certificate verification failed"
    )


async def test_a_host_with_another_name_is_not_unless_that_is_expected(
    authority: Authority,
) -> None:
    server = served(authority, x509.DNSName("lb.example"))
    assert "IP address mismatch" in await outcome(server, Tls(trust=authority.pem))
    expecting = Tls(trust=authority.pem, server_name="lb.example")
    assert await outcome(server, expecting) == ""


async def test_a_certificate_that_has_ended_is_refused(authority: Authority) -> None:
    error = await outcome(served(authority, LOCAL, ended=True), Tls(trust=authority.pem))
    assert "certificate has expired" in error


async def test_nothing_is_checked_where_that_is_asked_for(authority: Authority) -> None:
    assert await outcome(served(authority, ended=True), Tls(verify=False)) == ""


async def test_our_own_certificate_is_shown_to_hosts_that_ask(authority: Authority) -> None:
    server = served(authority, LOCAL)
    server.verify_mode = ssl.CERT_REQUIRED
    server.load_verify_locations(authority.file)
    certificate, key = authority.issue("gatehouse")
    own = Tls(
        trust=authority.pem, certificate=certificate.read_bytes(), key=SecretBytes(key.read_bytes())
    )
    assert await outcome(server, own) == ""
    assert await outcome(server, Tls(trust=authority.pem)) != ""


async def test_certificates_that_are_none_are_told_and_nothing_is_sent(
    authority: Authority,
) -> None:
    broken = Tls(trust=authority.pem, certificate=b"nonsense", key=SecretBytes(b"sesame"))
    error = await outcome(served(authority, LOCAL), broken)
    assert error.startswith("TLS configuration: ")
    assert "sesame" not in error
    assert (await outcome(served(authority, LOCAL), Tls(trust=b"nonsense"))).startswith(
        "TLS configuration: "
    )
