"""Access log entry of a request that `gatehouse explain --send` sent."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

import pytest

from gatehouse.cli import logged_request, request_sender
from gatehouse.cli.logged_request import (
    LoggedRequest,
    SentConnection,
    find_connection,
    find_entry,
    identified,
    read_logged,
)
from gatehouse.cli.sent_response import SentResponse
from gatehouse.compiler.evaluation.explanation import ExpectedResponse
from gatehouse.compiler.evaluation.http_request import HttpRequest
from gatehouse.kube import client as kube

FORWARDED = ExpectedResponse("forwarded", "")
FIND = partial(find_entry, request_id="abc")
POD = {
    "metadata": {"namespace": "shop", "name": "web-1"},
    "spec": {"containers": [{"name": "mesh"}, {"name": "envoy"}]},
}


def line(request_id: str | None, **fields: Any) -> str:
    entry = {"reason": "timeout", "endpoint": "10.0.0.1:80", "attempts": 2} | fields
    return json.dumps({"time": "", "request_id": request_id, **entry})


def test_entry_is_the_last_one_with_the_request_id() -> None:
    """Lines of the agent, and requests that name the ID in another field, are none."""
    null = line("abc", reason=None, endpoint=None, attempts=0)
    lines = [line("abc"), null, '{"event": "abc"}', line("x", path="abc"), "abc", line(None)]
    assert find_entry(lines[:1], "abc") == LoggedRequest("timeout", "10.0.0.1:80", 2)
    assert find_entry(lines, "abc") == LoggedRequest()
    assert find_entry(lines[2:], "abc") is None


def test_request_keeps_its_own_request_id() -> None:
    request = HttpRequest("GET", "a.example", "/", 80, False, "", (("x-request-id", "own"),), "")
    assert identified(request) == (request, "own")
    without, other = HttpRequest("GET", "a.example", "/", 80, False, "", (), ""), set[str]()
    for _ in range(2):
        sent, value = identified(without)
        assert sent.header("x-request-id") == value
        other.add(value)
    assert len(other) == 2


@pytest.mark.parametrize(
    ("reason", "cause"),
    [
        ("connection_failure", "8081 is the right targetPort of Service shop/x, Service shop/y"),
        ("backend_certificate", "is not valid for the BackendTLSPolicy of Service shop/x"),
        ("backend_tls", "Check that the port of the endpoint speaks TLS"),
        ("backend_protocol", "Check appProtocol of Service shop/x"),
        ("timeout", "the endpoint of Service shop/x, Service shop/y did not respond"),
        ("rate_limit", ""),
        ("of_a_later_version", ""),
    ],
)
def test_reason_of_an_entry_is_explained(reason: str, cause: str) -> None:
    backend = "Service/shop/x,Service/shop/y"
    text = line("abc", reason=reason, endpoint="10.0.0.1:8081", backend=backend)
    entry = find_entry([text], "abc")
    assert entry is not None
    assert cause in entry.cause
    assert bool(entry.cause) == bool(cause)


@pytest.mark.parametrize(
    ("sent", "logged", "agrees", "text"),
    [
        (SentResponse(True, "429, as expected", 429), LoggedRequest("rate_limit"), False,
         "reason rate_limit"),
        (SentResponse(True, "404, as expected", 404), LoggedRequest("", "10.0.0.1:80", 1), True,
         "the response is that of endpoint 10.0.0.1:80"),
        (SentResponse(False, "504, unlike the expected answer", 504),
         LoggedRequest("timeout", "10.0.0.1:80", 2), False,
         "reason timeout, endpoint 10.0.0.1:80, attempts 2:"
         " the endpoint of the backend did not respond in time"),
    ],
)  # fmt: skip
def test_answer_of_the_data_plane_is_unlike_that_of_a_backend(
    sent: SentResponse, logged: LoggedRequest, agrees: bool, text: str
) -> None:
    assert request_sender.is_error(sent, FORWARDED)
    result = sent.explained(logged, FORWARDED)
    assert (result.agrees, logged.text) == (agrees, text)
    assert (
        result.text == f"{sent.status}, {'as expected' if agrees else 'unlike the expected answer'}"
    )


@pytest.mark.parametrize(
    ("sent", "expected"),
    [
        (SentResponse(True, "", 200), FORWARDED),
        (SentResponse(True, "", 0), ExpectedResponse("forwarded", "", grpc=True)),
        (SentResponse(True, "", 503), ExpectedResponse("answered", "", (503,))),
        (SentResponse(False, ""), FORWARDED),
    ],
)
def test_expected_answers_need_no_entry(sent: SentResponse, expected: ExpectedResponse) -> None:
    assert not request_sender.is_error(sent, expected)


class _Client:
    """API server with the log of one Pod, or an error."""

    def __init__(self, *pages: str | kube.ApiError) -> None:
        self._pages = list(pages)
        self.asked: list[tuple[Any, ...]] = []

    async def pod_log(self, *which: Any) -> str:
        self.asked.append(which)
        page = self._pages.pop(0) if len(self._pages) > 1 else self._pages[0]
        if isinstance(page, kube.ApiError):
            raise page
        return page


async def read(client: _Client) -> LoggedRequest:
    return await read_logged(client, [POD], FIND)  # type: ignore[arg-type]


async def test_logs_are_read_until_the_entry_appears(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logged_request, "_POLL_SECONDS", 0.0)
    client = _Client("", line("other"), line("abc"))
    assert (await read(client)).reason == "timeout"
    assert [which[:3] for which in client.asked] == [("shop", "web-1", "envoy")] * 3


async def test_missing_entry_has_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logged_request, "_WAIT_SECONDS", 0.01)
    monkeypatch.setattr(logged_request, "_POLL_SECONDS", 0.0)
    assert (await read(_Client(line("other")))).text.startswith("no entry in the access log")
    denied = kube.Forbidden(403, "Forbidden", "cannot get pods/log")
    assert "cannot be read: cannot get pods/log" in (await read(_Client(denied))).text
    nothing = await read_logged(_Client(""), [], FIND)  # type: ignore[arg-type]
    assert nothing.problem == "there is no data plane"


def test_entry_of_a_connection_is_that_of_its_socket() -> None:
    """Earlier connections, and those of other clients and listeners, are none."""
    entry = {
        "time": "2026-01-01T00:00:10.500+00:00", "listener": "shop/web:5432", "protocol": "TCP",
        "peer": "10.0.0.9", "sni": "DB.example", "reason": "no_route", "endpoint": None,
        "duration_ms": 0.4e3,
    }  # fmt: skip
    sent = SentConnection(5432, "TCP", "db.example", "10.0.0.9", 1767225610.0)
    other: list[dict[str, Any]] = [
        {"duration_ms": 1000}, {"listener": "shop/web:54321"},
        {"peer": "10.0.0.8"}, {"peer": "unix:"}, {"sni": "other.example"}, {"protocol": "UDP"},
    ]  # fmt: skip
    lines = [*(json.dumps(entry | fields) for fields in other), "shop/web:5432 is no JSON"]
    assert find_connection(lines, "shop/web", sent) is None
    own = json.dumps(entry | {"peer": "::ffff:10.0.0.9"})
    assert find_connection([*lines, own], "shop/web", sent) == LoggedRequest("no_route")
