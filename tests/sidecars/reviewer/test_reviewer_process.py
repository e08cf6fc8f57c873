"""The reviewer's process: what it asks, what it keeps, and what becomes of it under faults."""

from __future__ import annotations

import asyncio
import contextlib
import re
import signal
import stat
from collections.abc import Callable, Sequence
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web

from fakes import patience
from fakes.durations import be_slow
from fakes.patience import pause, until
from fakes.reviewer_process import (
    CLUSTER,
    Fault,
    ReviewerProcess,
    ReviewerResponse,
    Upstream,
    review,
    running,
)
from gatehouse.sidecars.reviewer import config
from gatehouse.sidecars.reviewer.concurrency import MAX_CONCURRENT_REVIEWS, MAX_QUEUED

pytestmark = pytest.mark.process

ALICE = {"authenticated": True, "user": {"username": "alice", "groups": ["dev"]}}


def saying(response: Callable[[], web.StreamResponse]) -> Fault:
    async def fault(_: web.BaseRequest) -> web.StreamResponse:
        return response()

    return fault


async def authenticate_alice(request: web.BaseRequest) -> web.StreamResponse:
    """Respond in 5 ms. Tokens that begin with ``good`` belong to Alice."""
    await be_slow(0.005)
    if request.path.endswith("subjectaccessreviews"):
        return review({"allowed": True}, "SubjectAccessReview")
    good = b'"token":"good' in await request.read()
    return review(ALICE if good else {"user": {}, "error": "invalid bearer token"})


async def test_review_is_cached(reviewer: ReviewerProcess, upstream: Upstream) -> None:
    upstream.fault = authenticate_alice
    first = await reviewer.token("good")
    assert (first.status, first.headers["x-user"], first.headers["x-groups"]) == (
        200, "alice", "dev",
    )  # fmt: skip
    assert "x-uid" not in first.headers
    assert 599 < first.keep < 600

    async def has_aged() -> bool:
        return (await reviewer.token("good")).keep <= first.keep - 0.1

    await until(has_aged)
    assert (await reviewer.token("good", x_cluster="other.example")).status == 200
    assert [request.cluster for request in upstream.asked] == [CLUSTER, "other.example"]


async def test_concurrent_requests_share_one_review(
    reviewer: ReviewerProcess, upstream: Upstream
) -> None:
    upstream.fault = authenticate_alice
    answers = await asyncio.gather(*(reviewer.token("good") for _ in range(100)))
    assert {answer.status for answer in answers} == {200}
    assert len(upstream.asked) == 1
    answers = await asyncio.gather(*(reviewer.token("bad", bad=0) for _ in range(100)))
    assert {answer.status for answer in answers} == {401}
    assert len(upstream.asked) < 100


MALFORMED: list[tuple[dict[str, str], str]] = [
    ({"x_cluster": ""}, "x-cluster: invalid cluster name ''"),
    ({"x_cluster": "a/b"}, "x-cluster: invalid cluster name 'a/b'"),
    ({"x_good_for": "long"}, "x-good-for: invalid number of seconds 'long'"),
    ({"x_bad_for": "-1"}, "x-bad-for: invalid number of seconds '-1'"),
    ({"x_user": ""}, "x-user is missing"),
    ({"x_groups": "a,,b"}, "x-groups: one of 3 values is empty"),
    ({"x_as_user": "%"}, "x-as-user: '%' is not"),
    ({"x_as_extra": "scopes"}, "x-as-extra: 'scopes' must be"),
    ({"x_as_groups": ",".join(map(str, range(1000)))}, "1001 permissions needed"),
]
"""Headers and the message about them."""


async def test_malformed_request_is_rejected_without_review(
    reviewer: ReviewerProcess, upstream: Upstream
) -> None:
    for headers, message in MALFORMED:
        known = {"x_user": "a", "x_as_user": "b", **headers}
        response = await reviewer.ask("/impersonation", 1, 1, **known)
        assert (response.status, response.text.startswith(message)) == (400, True), response.text
    assert upstream.asked == []


async def test_request_without_bearer_token_is_denied_without_review(
    reviewer: ReviewerProcess, upstream: Upstream
) -> None:
    for header in ("", "Basic YTpi", "Bearer", "Bearer a b"):
        response = await reviewer.ask("/token", authorization=header)
        assert (response.status, response.keep) == (401, 10)
    assert upstream.asked == []


async def test_unknown_path_or_method_is_not_found(reviewer: ReviewerProcess) -> None:
    assert (await reviewer.ask("/")).status == 404
    assert (await reviewer.ask("/token/")).status == 404
    async with reviewer.http.get("http://reviewer/token") as response:
        assert response.status == 404


async def test_socket_is_accessible_to_owner_only(reviewer: ReviewerProcess) -> None:
    assert stat.S_IMODE(reviewer.socket.stat().st_mode) == 0o600


async def test_user_with_thousands_of_groups_is_returned(
    reviewer: ReviewerProcess, upstream: Upstream
) -> None:
    groups = [f"team {number} äöü" for number in range(3000)]
    status = {"authenticated": True, "user": {"username": "a", "groups": groups}}
    upstream.fault = saying(lambda: review(status))
    async with aiohttp.ClientSession(
        connector=aiohttp.UnixConnector(str(reviewer.socket)), max_field_size=1 << 20
    ) as http:
        reviewer.http = http
        response = await reviewer.token("a")
    assert response.status == 200
    assert response.headers["x-groups"].count(",") == 2999


# What fails


def _cut(request: web.BaseRequest) -> None:
    assert request.transport is not None
    request.transport.abort()


FAULTS: dict[str, tuple[Callable[[], web.StreamResponse], str]] = {
    "500": (lambda: web.Response(status=500, text="no"), "tokenreviews: 500 no"),
    "429": (
        lambda: web.json_response({"kind": "Status", "message": "Too many\nrequests"}, status=429),
        "tokenreviews: 429 Too many requests",
    ),
    "Envoy has nobody": (
        lambda: web.Response(status=503, text="no healthy upstream"),
        "tokenreviews: 503 no healthy upstream",
    ),
    "no JSON": (lambda: web.Response(text="<html>"), "invalid review: JSON is"),
    "nothing": (lambda: web.Response(), "invalid review: Input data was truncated"),
    "no review": (
        lambda: web.json_response({"kind": "Status", "status": "Failure"}),
        "invalid review: Invalid enum value 'Status'",
    ),
    "nobody": (lambda: review({"authenticated": True}), "TokenReview without a username"),
    "too much": (
        lambda: web.Response(body=b" " * (2 << 20)),
        "response is larger than 1048576 bytes",
    ),
}


async def test_failed_review_is_retried_once_and_not_cached(
    reviewer: ReviewerProcess, upstream: Upstream
) -> None:
    for name, (response, message) in FAULTS.items():
        upstream.asked.clear()
        token = f"good-{name.replace(' ', '-')}"
        upstream.fault = saying(response)
        result = await reviewer.token(token)
        assert (name, result.status, len(upstream.asked)) == (name, 503, 2)
        assert result.text.startswith(f"{CLUSTER}: {message}")
        assert "x-keep" not in result.headers
        assert f"reviewer: {result.text}" in reviewer.log
        upstream.fault = authenticate_alice
        assert (await reviewer.token(token)).status == 200
    metrics = await reviewer.metrics()
    label = f'cluster="{CLUSTER}",outcome="failed",review="token"'
    assert metrics[f"gatehouse_reviewer_reviews_total{{{label}}}"] == len(FAULTS)
    assert metrics["gatehouse_reviewer_retries_total"] == len(FAULTS)


async def test_single_failure_is_retried_transparently(
    reviewer: ReviewerProcess, upstream: Upstream
) -> None:
    async def fault(request: web.BaseRequest) -> web.StreamResponse | None:
        if len(upstream.asked) > 1:
            return await authenticate_alice(request)
        if name == "slow":
            await be_slow(10)
        if name == "cut":
            _cut(request)
            return web.Response()
        return FAULTS[name][0]()

    upstream.fault = fault
    for name in (*FAULTS, "cut", "slow"):
        upstream.asked.clear()
        response = await reviewer.token(f"good-{name.replace(' ', '-')}")
        assert (name, response.status, len(upstream.asked)) == (name, 200, 2)
    assert reviewer.log == ""


async def test_denied_token_review_is_not_retried(
    reviewer: ReviewerProcess, upstream: Upstream
) -> None:
    for status in (400, 401, 403, 404):
        upstream.asked.clear()
        upstream.fault = saying(lambda: web.Response(status=status, text="go away"))  # noqa: B023
        response = await reviewer.token("good")
        message = f"{CLUSTER}: tokenreviews: {status} go away"
        assert (response.status, response.text) == (503, message)
        assert len(upstream.asked) == 1


async def test_review_of_silent_cluster_times_out(
    reviewer: ReviewerProcess, upstream: Upstream
) -> None:
    async def fault(_: web.BaseRequest) -> web.StreamResponse | None:
        await be_slow(30)
        return None

    upstream.fault = fault
    response = await reviewer.token("good")
    assert (response.status, response.text) == (503, f"{CLUSTER}: no response within 2 s")
    assert len(upstream.asked) == 2


async def test_cached_reviews_are_served_while_envoy_is_unavailable(
    reviewer: ReviewerProcess, upstream: Upstream
) -> None:
    upstream.fault = authenticate_alice
    assert (await reviewer.token("good")).status == 200
    await upstream.stop()
    assert (await reviewer.token("good")).status == 200
    response = await reviewer.token("good too")
    assert (response.status, "x-user" in response.headers) == (401, False)
    response = await reviewer.token("good-too")
    assert response.status == 503
    assert response.text == f"{CLUSTER}: cannot connect to Envoy: No such file or directory"
    await upstream.start()
    assert (await reviewer.token("good-too")).status == 200


async def test_one_failed_review_fails_impersonation(
    reviewer: ReviewerProcess, upstream: Upstream
) -> None:
    async def fault(request: web.BaseRequest) -> web.StreamResponse | None:
        if b'"name":"ops"' in await request.read():
            return web.Response(status=500, text="no")
        return await authenticate_alice(request)

    upstream.fault = fault
    client, target = {"username": "a"}, {"username": "b", "groups": ["dev", "ops"]}
    response = await reviewer.impersonation(client, target)
    assert (response.status, response.text) == (503, f"{CLUSTER}: subjectaccessreviews: 500 no")


async def test_tokens_never_appear_in_log_or_response(
    reviewer: ReviewerProcess, upstream: Upstream
) -> None:
    async def fault(request: web.BaseRequest) -> web.StreamResponse | None:
        return web.Response(status=500, body=b"x" * 250 + b" cannot: " + await request.read())

    upstream.fault = fault
    token = "good" + "s3cret" * 40
    response = await reviewer.token(token)
    assert response.status == 503
    assert "cannot" in reviewer.log
    for text in (response.text, reviewer.log):
        assert "s3cret" not in text


# How much


async def test_reviews_per_cluster_are_limited_and_block_no_other_cluster(
    reviewer: ReviewerProcess, upstream: Upstream
) -> None:
    release = asyncio.Event()

    async def fault(request: web.BaseRequest) -> web.StreamResponse | None:
        if request.headers["Host"] == CLUSTER:
            await release.wait()
        return await authenticate_alice(request)

    upstream.fault = fault
    more = 20
    flood = [
        asyncio.create_task(reviewer.token(f"good{number}"))
        for number in range(MAX_CONCURRENT_REVIEWS + MAX_QUEUED + more)
    ]
    label = f'cluster="{CLUSTER}",outcome="busy",review="token"'

    async def rejected() -> bool:
        return f"gatehouse_reviewer_reviews_total{{{label}}}" in await reviewer.metrics()

    await until(rejected)
    assert (await reviewer.token("good", x_cluster="other.example")).status == 200
    assert upstream.most <= MAX_CONCURRENT_REVIEWS + 1
    release.set()
    answers = await asyncio.gather(*flood)
    assert {answer.status for answer in answers} <= {200, 503}
    assert {answer.text for answer in answers if answer.status == 503} <= {
        f"{CLUSTER}: too many waiting reviews",
        f"{CLUSTER}: no free slot for a review within 2 s",
        f"{CLUSTER}: no response within 2 s",
    }
    assert (await reviewer.token("good")).status == 200


async def test_rejected_tokens_do_not_evict_granted_tokens(
    reviewer: ReviewerProcess, upstream: Upstream
) -> None:
    upstream.fault = authenticate_alice
    assert (await reviewer.token("good")).status == 200
    before, number = _resident(reviewer.process.pid), 10_000

    async def some(first: int) -> set[int]:
        return await statuses(reviewer, [f"bad{index}" for index in range(first, number, 25)])

    assert set.union(*await asyncio.gather(*map(some, range(25)))) == {401}
    metrics = await reviewer.metrics()
    assert metrics['gatehouse_reviewer_cache_entries{cache="refused"}'] == number
    assert metrics['gatehouse_reviewer_cache_entries{cache="tokens"}'] == 1
    assert _resident(reviewer.process.pid) - before < 30_000
    request_count = len(upstream.asked)
    assert (await reviewer.token("good")).status == 200
    assert len(upstream.asked) == request_count


async def statuses(reviewer: ReviewerProcess, tokens: Sequence[str]) -> set[int]:
    """Ask over one connection, at the least cost to this process.

    What a busy upstream did not answer in time (503) is asked again, as clients do.
    """
    reader, writer = await asyncio.open_unix_connection(str(reviewer.socket))
    result = set()
    with contextlib.closing(writer):
        for token in tokens:
            while (status := await _asked(reader, writer, token)) == 503:
                await pause()
            result.add(status)
    return result


async def _asked(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, token: str) -> int:
    writer.write(
        b"POST /token HTTP/1.1\r\nhost: r\r\ncontent-length: 0\r\nx-good-for: 600\r\n"
        b"x-bad-for: 600\r\nx-cluster: %b\r\nauthorization: Bearer %b\r\n\r\n"
        % (CLUSTER.encode(), token.encode())
    )
    head = await reader.readuntil(b"\r\n\r\n")
    length = re.search(rb"(?i)\r\ncontent-length: *(\d+)", head)
    assert length is not None, head
    await reader.readexactly(int(length[1]))
    return int(head[9:12])


def _resident(pid: int) -> int:
    """Return the memory of a process in kB."""
    text = Path(f"/proc/{pid}/status").read_text()
    return int(text.partition("VmRSS:")[2].split()[0])


# How it lives


class Load:
    """Questions without a pause, over connections that are kept, as Envoy asks them."""

    def __init__(self, reviewer: ReviewerProcess, width: int = 8) -> None:
        self._reviewer, self._width = reviewer, width
        self.answers: list[ReviewerResponse] = []
        self.errors: list[str] = []

    async def __aenter__(self) -> Load:
        self._tasks = [asyncio.create_task(self._ask(number)) for number in range(self._width)]
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _ask(self, first: int) -> None:
        number = first
        while True:
            number += self._width
            try:
                # Some from memory, some not.
                answer = await self._reviewer.token(f"good{number // 3}")
                self.answers.append(answer)
            except (aiohttp.ClientError, OSError) as error:
                self.errors.append(repr(error))
                await patience.pause()

    async def more(self, count: int = 200) -> None:
        reached = len(self.answers) + count
        await until(lambda: len(self.answers) >= reached)


async def test_successor_takes_over_without_failed_requests(
    reviewer: ReviewerProcess, upstream: Upstream
) -> None:
    upstream.fault = authenticate_alice
    async with Load(reviewer) as load:
        for _ in range(3):
            await load.more()
            old = reviewer.process
            reviewer.start()
            await reviewer.serving()
            await until(lambda: old.poll() is not None)  # noqa: B023
            assert old.returncode == 0
            # The old one left what is the new one's.
            await reviewer.serving()
            await load.more()
    assert load.errors == []
    assert {answer.status for answer in load.answers} == {200}


async def test_pending_reviews_are_answered_before_exit(
    reviewer: ReviewerProcess, upstream: Upstream
) -> None:
    draining = asyncio.Event()

    async def fault(request: web.BaseRequest) -> web.StreamResponse | None:
        await draining.wait()
        return await authenticate_alice(request)

    upstream.fault = fault
    requests = [asyncio.create_task(reviewer.token(f"good{number}")) for number in range(20)]
    await until(lambda: len(upstream.asked) >= 20)
    reviewer.process.send_signal(signal.SIGTERM)
    await until(lambda: not reviewer.socket.exists())
    draining.set()
    assert {response.status for response in await asyncio.gather(*requests)} == {200}
    assert reviewer.process.wait(patience.SECONDS) == 0


async def test_killed_reviewer_is_replaced_under_load(
    reviewer: ReviewerProcess, upstream: Upstream
) -> None:
    upstream.fault = authenticate_alice
    async with Load(reviewer) as load:
        await load.more()
        reviewer.process.kill()
        reviewer.process.wait()
        await until(lambda: load.errors)
        reviewer.start()
        await reviewer.serving()
        # Each connection asks again.
        await load.more()
        failed = len(load.errors)
        await load.more()
        assert len(load.errors) == failed
    assert {answer.status for answer in load.answers} == {200}


async def test_process_exits_after_linger_time(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    async with (
        running(tmp_path, linger=0.3) as reviewer,
        running(tmp_path / "other", linger=0.3) as other,
    ):
        await reviewer.serving()
        await other.serving()
        assert reviewer.socket.exists()
        assert await reviewer.serve() == ""
        assert await reviewer.serve(tmp_path) == ""
        # The linger time of the other one begins later.
        assert await other.serve() == ""
        assert other.process.wait(patience.SECONDS) == 0
        assert reviewer.process.poll() is None
        assert await reviewer.serve() == ""
        assert reviewer.process.wait(patience.SECONDS) == 0
        assert not reviewer.socket.exists()


async def test_failure_to_listen_is_reported(tmp_path: Path) -> None:
    async with running(tmp_path) as reviewer:
        (tmp_path / config.REVIEWER_SOCKET).mkdir()
        message = await reviewer.serve(tmp_path)
        assert message == f"{tmp_path / config.REVIEWER_SOCKET}: Is a directory"
        (tmp_path / config.REVIEWER_SOCKET).rmdir()
        with contextlib.suppress(FileNotFoundError):
            (tmp_path / config.REVIEWER_SOCKET).unlink()
        assert await reviewer.serve(tmp_path) == ""
