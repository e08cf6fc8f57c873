"""Counters of failed attempts, from lines of the error log of NGINX."""

from __future__ import annotations

import pytest

from fakes.nginx_error_lines import VICTIM, error_line
from gatehouse.agent.nginx import endpoint_failures
from gatehouse.agent.nginx.endpoint_failures import EndpointFailures
from gatehouse.agent.nginx.failed_attempts import failed_attempts


def counted(*lines: str) -> dict[tuple[str, str], float]:
    failures = EndpointFailures()
    failures.count(failed_attempts(lines))
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
        ("peer closed connection in SSL handshake while SSL handshaking to", "connection_failure"),
        ("upstream SSL certificate verify error: (10:certificate has expired) while SSL "
         "handshaking to", "backend_certificate"),
        ('upstream SSL certificate does not match "a.example" while SSL handshaking to',
         "backend_certificate"),
        ("upstream sent no valid HTTP/1.0 header while reading response header from",
         "backend_protocol"),
    ],
)  # fmt: skip
def test_message_has_the_reason_of_the_access_log(text: str, reason: str) -> None:
    assert counted(error_line(text), error_line(text)) == {("10.0.0.1:8443", reason): 2}


@pytest.mark.parametrize(
    "forged",
    [
        error_line(f'upstream sent invalid header: "{VICTIM}" while reading response header from'),
        error_line(
            f'upstream sent invalid header: "a" {VICTIM}" while reading response header from'
        ),
        error_line("x while connecting to", request='GET /", upstream: "http://10.0.0.66:80/'),
        error_line('does not match "a" while connecting to', request=VICTIM),
        error_line("x while connecting to", endpoint='", upstream: "http://10.0.0.66:80'),
        VICTIM,
        f'2026/11/24 09:15:07 [error] 7#7: *1 open() "/{VICTIM}" failed, client: 10.0.0.9',
    ],
)
def test_text_of_clients_and_backends_does_not_count_for_other_endpoints(forged: str) -> None:
    assert not any(endpoint.startswith("10.0.0.66") for endpoint, _ in counted(forged))


@pytest.mark.parametrize("endpoint", ["10.0.0.1:80", "[fd00::1]:8080"])
def test_addresses_of_both_families_subrequests_and_grpc_are_counted(endpoint: str) -> None:
    text = error_line("connect() failed while connecting to", endpoint)
    mirrored = text.replace(", upstream: ", ', subrequest: "/mirror", upstream: ')
    grpc = text.replace(f"https://{endpoint}/", f"grpc://{endpoint}")
    assert counted(text, mirrored, grpc) == {(endpoint, "connection_failure"): 3}


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
    assert counted(*(error_line(text, host) for host in hosts)) == {
        ("10.0.0.1:1", "connection_failure"): 2,
        ("10.0.0.2:1", "connection_failure"): 1,
    }
