"""Counters of failed attempts, from lines of the error log of NGINX."""

from __future__ import annotations

import pytest

from gatehouse.agent.nginx import endpoint_failures
from gatehouse.agent.nginx.endpoint_failures import EndpointFailures


def line(text: str, endpoint: str = "10.0.0.1:8443", request: str = "GET / HTTP/1.1") -> str:
    return (
        f"2026/11/24 09:15:07 [error] 7#7: *1 {text} upstream, client: 10.0.0.9, server: , "
        f'request: "{request}", upstream: "https://{endpoint}/", host: "a.example"'
    )


def counted(*lines: str) -> dict[tuple[str, str], float]:
    failures = EndpointFailures()
    failures.count(lines)
    return {
        (sample.labels["endpoint"], sample.labels["reason"]): sample.value
        for sample in failures.samples()
    }


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("connect() failed (111: Connection refused) while connecting to", "connection_failure"),
        ("upstream prematurely closed connection while reading response header from",
         "connection_failure"),
        ("upstream timed out (110: Connection timed out) while connecting to", "timeout"),
        ("upstream timed out (110: Connection timed out) while SSL handshaking to", "timeout"),
        ("SSL_do_handshake() failed (SSL: wrong version number) while SSL handshaking to",
         "backend_tls"),
        ("peer closed connection in SSL handshake while SSL handshaking to", "backend_tls"),
        ("upstream SSL certificate verify error: (10:certificate has expired) while SSL "
         "handshaking to", "backend_certificate"),
        ("upstream sent no valid HTTP/1.0 header while reading response header from",
         "backend_protocol"),
    ],
)  # fmt: skip
def test_message_has_the_reason_of_the_access_log(text: str, reason: str) -> None:
    assert counted(line(text), line(text)) == {("10.0.0.1:8443", reason): 2}


def test_lines_about_clients_and_other_matters_are_not_counted() -> None:
    assert not counted(
        "2026/11/24 09:15:07 [notice] 7#7: signal process started",
        "2026/11/24 09:15:07 [error] 7#7: *1 open() failed, client: 10.0.0.9, server: ",
        "",
    )


def test_number_of_counted_endpoints_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoint_failures, "MAX_COUNTED_ENDPOINTS", 2)
    text = "connect() failed (111: Connection refused) while connecting to"
    hosts = ("10.0.0.1:1", "10.0.0.2:1", "10.0.0.3:1", "10.0.0.1:1")
    assert counted(*(line(text, host) for host in hosts)) == {
        ("10.0.0.1:1", "connection_failure"): 2,
        ("10.0.0.2:1", "connection_failure"): 1,
    }
