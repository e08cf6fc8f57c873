"""Matching of certificates' names."""

from __future__ import annotations

import ipaddress
import ssl
from pathlib import Path
from typing import Any, Literal

import pytest
from cryptography import x509

from fakes.authority import Authority
from gatehouse.sidecars.base import san_match
from gatehouse.sidecars.base.san_match import SubjectAltName

DNS: Literal["dns"] = "dns"
URI: Literal["uri"] = "uri"


def having(directory: Path, *names: x509.GeneralName) -> dict[str, Any]:
    """Return a real certificate as ``ssl`` represents a peer's certificate."""
    authority = Authority(directory)
    server_context = authority.server("common.example", *names)
    client_context = ssl.create_default_context(cafile=str(authority.file))
    client_context.check_hostname = False
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    server = server_context.wrap_bio(to_server, to_client, server_side=True)
    client = client_context.wrap_bio(to_client, to_server)
    for side in (client, server, client):
        try:
            side.do_handshake()
        except ssl.SSLWantReadError:
            continue
    result = client.getpeercert()
    assert result is not None
    return dict(result)


@pytest.mark.parametrize(
    ("presented", "kind", "pattern", "good"),
    [
        ("a.example.com", DNS, "a.example.com", True),
        ("A.Example.COM", DNS, "a.example.com", True),
        ("a.example.com", DNS, "A.EXAMPLE.com", True),
        ("a.example.com", DNS, "b.example.com", False),
        ("a.example.com", DNS, "example.com", False),
        ("example.com", DNS, "a.example.com", False),
        ("xa.example.com", DNS, "a.example.com", False),
        ("*.example.com", DNS, "a.example.com", True),
        ("*.EXAMPLE.com", DNS, "a.example.com", True),
        ("*.example.com", DNS, "a.b.example.com", False),
        ("*.example.com", DNS, "example.com", False),
        ("*.com", DNS, "example.com", False),
        ("*", DNS, "localhost", False),
        ("a*.example.com", DNS, "ab.example.com", False),
        ("a.*.com", DNS, "a.example.com", False),
        ("*.*.com", DNS, "a.example.com", False),
        ("*.example.com", DNS, "*.example.com", True),
        ("a.example.com", DNS, "*.example.com", False),
        ("*.b.example.com", DNS, "*.example.com", False),
        ("*.example.com", DNS, "*.b.example.com", False),
        ("spiffe://a/b", URI, "spiffe://a/b", True),
        ("spiffe://a/b", URI, "spiffe://a/B", False),
        ("spiffe://a/b", URI, "spiffe://a/b/", False),
        ("spiffe://a/b", URI, "spiffe://a", False),
        ("https://a.example.com/", DNS, "a.example.com", False),
        ("a.example.com", URI, "https://a.example.com", False),
        ("10.0.0.1", DNS, "10.0.0.1", False),
    ],
)
def test_san_matches_configured_name(
    tmp_path: Path, presented: str, kind: Any, pattern: str, good: bool
) -> None:
    name: x509.GeneralName = x509.DNSName(presented)
    if "://" in presented:
        name = x509.UniformResourceIdentifier(presented)
    elif presented[0].isdigit():
        name = x509.IPAddress(ipaddress.ip_address(presented))
    assert (
        san_match.matches_any_san(having(tmp_path, name), [SubjectAltName(kind, pattern)]) is good
    )


def test_one_matching_san_is_sufficient(tmp_path: Path) -> None:
    certificate = having(
        tmp_path, x509.DNSName("a.example"), x509.UniformResourceIdentifier("spiffe://a")
    )
    assert san_match.matches_any_san(
        certificate, [SubjectAltName(DNS, "b.example"), SubjectAltName(URI, "spiffe://a")]
    )
    assert not san_match.matches_any_san(
        certificate, [SubjectAltName(DNS, "b.example"), SubjectAltName(URI, "spiffe://b")]
    )


def test_common_name_is_ignored(tmp_path: Path) -> None:
    certificate = having(tmp_path)
    assert certificate["subject"] == ((("commonName", "common.example"),),)
    assert not san_match.matches_any_san(certificate, [SubjectAltName(DNS, "common.example")])
    assert san_match.format_certificate_names(certificate) == "no names"


def test_formatted_certificate_names_contain_no_line_breaks() -> None:
    text = san_match.format_certificate_names(
        {"subjectAltName": (("URI", "x\n2026 [error] forged"),)}
    )
    assert "\n" not in text
