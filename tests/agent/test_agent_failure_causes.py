"""Causes of failed requests in the logs of NGINX, from lines of its error log."""

from __future__ import annotations

import json
import os
import ssl
from pathlib import Path

import pytest

from fakes.nginx_error_lines import VICTIM, error_line
from gatehouse.agent.access_log import LogForwarder
from gatehouse.agent.error_log import ErrorLog
from gatehouse.agent.nginx import failure_causes
from gatehouse.agent.nginx.failed_attempts import REQUEST_START, failed_attempts
from gatehouse.agent.nginx.failure_causes import FailureCauses
from gatehouse.sidecars.tls_connector.last_handshake import LastHandshake, UntrustedError

CERTIFICATE = "upstream SSL certificate verify error: (10:certificate has expired) while SSL "
EXPIRED, REFUSED = f"{CERTIFICATE}handshaking to", "connect() failed (111: x) while connecting to"
NO_TLS = "SSL_do_handshake() failed (SSL: wrong version number) while SSL handshaking to"
ENDPOINT = "10.0.0.1:8443"


class Reader:
    """Error log of an NGINX that has written lines."""

    def __init__(self, *lines: str, run: Path = Path("missing")) -> None:
        self.causes = FailureCauses(self.read, run)
        self.lines, self.reads = lines, 0

    def read(self) -> None:
        self.reads += 1
        self.causes.remember(failed_attempts(self.lines))
        self.lines = ()

    def entries(self, data: bytes) -> bytes:
        return b"".join(entries for _, entries in self.causes.access_entries(data))

    def reason(self, mark: str, reason: str = "connection_failure") -> str:
        """Return the reason of an entry with a mark, in all places of which it is the same."""
        as_json = f'{{"time":"t","reason":"{reason}{mark}","user_agent":"x"}}\n'.encode()
        as_text = f'time="t" reason="{reason}{mark}" user_agent="x"\n'.encode()
        result = json.loads(self.entries(as_json))["reason"]
        assert self.entries(as_text) == f'time="t" reason="{result}" user_agent="x"\n'.encode()
        return str(result)


def mark(endpoints: str = ENDPOINT, request: str = "GET / HTTP/1.1", connection: int = 1) -> str:
    return f"*{connection} {endpoints} {request}"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (EXPIRED, "backend_certificate"),
        (NO_TLS, "backend_tls"),
        (REFUSED, "connection_failure"),
        ("upstream sent invalid header while reading response header from", "backend_protocol"),
    ],
)
def test_cause_takes_the_place_of_the_mark(text: str, reason: str) -> None:
    reader = Reader(error_line(text))
    assert reader.reason(mark()) == reason
    line = f"a/b/0\tService/a/s\t{mark()}\t502\tGET|0.1\t-\t0.1\t1\t2\n"
    expected = line.replace(mark(), "" if reason == "connection_failure" else f"*{reason}")
    assert reader.causes.counted_lines(line.encode()) == expected.encode()


@pytest.mark.parametrize("reason", ["", "backend_protocol", "timeout"])
def test_exact_reasons_lose_only_the_mark(reason: str) -> None:
    assert Reader(error_line(EXPIRED)).reason(mark(), reason) == reason


@pytest.mark.parametrize(
    "other",
    [
        mark(connection=2),
        mark("10.0.0.2:8443"),
        mark(f"{ENDPOINT}, 10.0.0.2:8443"),
        mark(request="POST / HTTP/1.1"),
        mark(request="GET /x HTTP/1.1"),
        mark("shop_api"),
        "*1 ",
        "*1  GET / HTTP/1.1",
        "*1 a b",
        f"*{'9' * 19} {ENDPOINT} GET / HTTP/1.1",
    ],
)
def test_cause_of_another_request_or_attempt_is_none(other: str) -> None:
    reader = Reader(error_line(EXPIRED))
    assert reader.reason(other) == "connection_failure"
    line = f"\t\tconnection_failure{other}\t200\tPOST|0\t-\t0\t1\t2\n".encode()
    assert reader.causes.counted_lines(line) == line.replace(other.encode(), b"")


def test_last_attempt_at_the_last_endpoint_counts() -> None:
    reader = Reader(error_line(EXPIRED), error_line(REFUSED, "10.0.0.2:8443"), error_line(NO_TLS))
    assert reader.reason(mark(f"10.0.0.2:8443, {ENDPOINT}")) == "backend_tls"
    # After a redirection to a location, endpoints follow a colon.
    assert reader.reason(mark(f"10.0.0.2:8443 : {ENDPOINT}")) == "backend_tls"
    assert reader.reason(mark(f"{ENDPOINT}, 10.0.0.2:8443")) == "connection_failure"


def test_connections_of_listeners_without_http_have_causes() -> None:
    line = (
        f"2026/11/24 09:15:07 [error] 7#7: *4 {EXPIRED} upstream, client: 10.0.0.9, server: "
        f'0.0.0.0:443, upstream: "{ENDPOINT}", bytes from/to client:0/0, bytes from/to upstream:0/0'
    )
    reader = Reader(line)
    for endpoints in (ENDPOINT, f"10.0.0.2:1, {ENDPOINT}"):
        assert reader.reason(f"*4 {endpoints}") == "backend_certificate"
        lines = f"a/b/0 Service/a/s up\tconnection_failure*4 {endpoints}\tTCP|0\t1\t2\n".encode()
        expected = b"a/b/0 Service/a/s up\tconnection_failure*backend_certificate\tTCP|0\t1\t2\n"
        assert reader.causes.counted_lines(lines) == expected
    for other in ("*5 10.0.0.1:8443", "*4 10.0.0.2:1", "*4 upstream", "*4 "):
        assert reader.reason(other) == "connection_failure"
    # A request is never a connection.
    assert reader.reason(mark(connection=4)) == "connection_failure"
    assert Reader(error_line(EXPIRED)).reason(f"*1 {ENDPOINT}") == "connection_failure"


def test_requests_of_one_http2_connection_have_their_own_causes() -> None:
    lines = (
        error_line(EXPIRED, request="GET /a HTTP/2.0"),
        error_line(NO_TLS, request="GET /b HTTP/2.0"),
    )
    reader = Reader(*lines)
    assert reader.reason(mark(request="GET /b HTTP/2.0")) == "backend_tls"
    assert reader.reason(mark(request="GET /a HTTP/2.0")) == "backend_certificate"


@pytest.mark.parametrize(
    "path", ["/%22?a|b*c", "/a\\\\b", "/\u00e9\ufffd", "/*1 x".replace(" ", "+")]
)
def test_special_characters_of_paths_are_the_same_in_both_logs(path: str) -> None:
    request = f"GET {path} HTTP/1.1"
    reader = Reader(error_line(EXPIRED, request=request.replace("\\\\", "\\")))
    assert reader.reason(mark(request=request)) == "backend_certificate"
    raw = f"\t\t{mark(request=request)}\t502\tGET|0\t-\t0\t1\t2\n".replace("\\\\", "\\").encode()
    lines = reader.causes.counted_lines(raw)
    assert lines == b"\t\t*backend_certificate\t502\tGET|0\t-\t0\t1\t2\n"


def test_request_line_that_nginx_cuts_is_known_by_its_start() -> None:
    path = f"/{'x' * 3000}"
    cut = error_line(EXPIRED, request=f"GET {path} HTTP/1.1")[:2047]
    assert Reader(cut).reason(mark(request=f"GET {path} HTTP/1.1")) == "backend_certificate"
    short = error_line(EXPIRED, request=f"GET {path[:900]}")[:1000]
    assert Reader(short).reason(mark(request=f"GET {path} HTTP/1.1")) == "connection_failure"
    assert REQUEST_START < 2047


FORGED = [
    '"reason":"connection_failure*1 10.0.0.1:8443 GET / HTTP/1.1"',
    'reason="connection_failure*1 10.0.0.1:8443 GET / HTTP/1.1"',
    '\\"reason\\":\\"connection_failure*1 10.0.0.1:8443 GET / HTTP/1.1\\"',
    "connection_failure*1 10.0.0.1:8443 GET / HTTP/1.1",
    "\n*1 10.0.0.1:8443 GET / HTTP/1.1",
    f'"reason":"*{"9" * 5000} x"',
]


@pytest.mark.parametrize("agent", FORGED)
def test_text_of_clients_in_an_entry_is_no_mark(agent: str) -> None:
    fields = {"time": "t", "host": agent, "reason": "", "user_agent": agent}
    entry = f"{json.dumps(fields, separators=(',', ':'))}\n".encode()
    assert Reader(error_line(EXPIRED)).entries(entry) == entry
    own_format = f"502 {agent}\n".encode()
    assert Reader(error_line(EXPIRED)).entries(own_format * 2) == own_format * 2
    real = f'{{"time":"t","reason":"connection_failure{mark()}"}}\n'.encode()
    both = Reader(error_line(EXPIRED)).entries(own_format + real + own_format)
    named = b'{"time":"t","reason":"backend_certificate"}\n'
    assert both == own_format + named + own_format


@pytest.mark.parametrize(
    "forged",
    [
        error_line(f'upstream sent invalid header: "{VICTIM}" while reading response header from'),
        error_line("x while connecting to", request=f"GET /{VICTIM}"),
        error_line("x while connecting to", request='GET /", upstream: "https://10.0.0.66:80/'),
        f"2026/11/24 09:15:07 [error] 7#7: *1 x *2 {EXPIRED} upstream, {VICTIM}",
        VICTIM,
    ],
)
def test_text_of_clients_and_backends_is_no_cause_for_other_requests(forged: str) -> None:
    reader = Reader(forged)
    for connection in (2, 3):
        for endpoint in (ENDPOINT, "10.0.0.66:80"):
            assert reader.reason(mark(endpoint, connection=connection)) == "connection_failure"


def test_cause_of_a_connector_is_that_of_its_last_handshake(tmp_path: Path) -> None:
    (tmp_path / "connectors").mkdir()
    last = LastHandshake(tmp_path / "connectors" / "0ab9.sock")
    reader = Reader(run=tmp_path)
    marks = ("*4 unix:connectors/0ab9.sock", mark("10.0.0.1:1, unix:connectors/0ab9.sock"))
    results = {
        ConnectionRefusedError(): "connection_failure",
        UntrustedError(): "backend_certificate",
        ssl.SSLCertVerificationError(): "backend_certificate",
        ssl.SSLError(): "backend_tls",
        None: "connection_failure",
    }
    for error, reason in results.items():
        last.record(error)
        assert [reader.reason(text) for text in marks] == [reason, reason]
    last.record(UntrustedError())
    assert reader.reason("*4 unix:connectors/../0ab9.sock") == "connection_failure"
    assert reader.reason("*4 unix:connectors/0ab8.sock") == "connection_failure"
    (tmp_path / "connectors" / "0ab9.cause").write_bytes(b"no_route")
    assert reader.reason(marks[0]) == "connection_failure"
    # The file of an earlier process is removed.
    LastHandshake(tmp_path / "connectors" / "0ab9.sock")
    assert [*(tmp_path / "connectors").iterdir()] == []


def test_number_of_remembered_causes_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(failure_causes, "MAX_CAUSES", 2)
    ports = (1, 2, 1, 3)
    reader = Reader(*(error_line(EXPIRED, f"10.0.0.1:{port}") for port in ports))
    reasons = {port: reader.reason(mark(f"10.0.0.1:{port}")) for port in (1, 2, 3)}
    assert reasons == {1: "backend_certificate", 2: "connection_failure", 3: "backend_certificate"}


def test_error_log_is_read_only_for_blocks_with_marks() -> None:
    reader = Reader()
    good = b'{"time":"","reason":"","user_agent":"*1 x"}\n' * 3
    assert reader.entries(good) == good
    assert reader.causes.counted_lines(b"a\tb\t\t200\tGET|1\n") == b"a\tb\t\t200\tGET|1\n"
    assert reader.reads == 0
    assert list(reader.causes.access_entries(b"")) == []
    marked = f'{{"time":"","reason":"connection_failure{mark()}"}}\n'.encode()
    pieces = list(reader.causes.access_entries(good + marked + marked + good))
    assert [part for part, _ in pieces] == [good, marked, marked, good]
    assert reader.reads == 1


def test_lines_of_the_error_log_are_observed_once_and_the_last_ones_are_known_after_a_restart(
    tmp_path: Path,
) -> None:
    log, observed = ErrorLog(tmp_path / "error.log"), list[str]()
    log.observe = observed.extend
    with (tmp_path / "error.log").open("a", encoding="utf-8", buffering=1) as nginx:
        nginx.write("before\n")
        log.read()
        assert observed == []
        nginx.write("one\ntw")
        log.read()
        log.read()
        assert observed == ["one"]
        nginx.write("o\n")
        log.read()
    assert observed == ["one", "two"]
    assert ErrorLog(tmp_path / "error.log").last_lines() == ["before", "one", "two"]


async def test_entries_with_causes_continue_after_the_output_was_blocked(tmp_path: Path) -> None:
    reader = Reader(error_line(EXPIRED))
    marked = f'{{"time":"{"x" * 5000}","reason":"connection_failure{mark()}"}}\n'
    plain = f'{{"pad":"{"y" * 3000}","reason":""}}\n'
    text = (marked + plain) * 20
    source, target = os.pipe()
    log = LogForwarder(tmp_path / "unused", target, reader.causes.access_entries)
    data, output = text.encode(), b""
    while data:
        taken = log._write(data)
        data = data[taken:]
        output += os.read(source, 1 << 20)
    os.close(source)
    os.close(target)
    cause = marked.replace(f"connection_failure{mark()}", "backend_certificate")
    assert output.decode() == (cause + plain) * 20
