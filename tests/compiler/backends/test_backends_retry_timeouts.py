"""Retries end with the timeout of the request, on both proxies."""

from __future__ import annotations

import asyncio
import functools
import re
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from differential import proxies
from differential.proxies import Runner
from fakes import patience
from fakes.authorized_traffic import served
from fakes.durations import be_slow
from fakes.one_route import BACKEND
from gatehouse.compiler.backends.nginx.directives import Directive
from gatehouse.compiler.backends.nginx.retry_selection import RetrySelection, at_least

RUNNERS = [
    pytest.param(
        functools.partial(proxies.with_nginx, modules=("http_auth_request_module",)), id="nginx"
    ),
    pytest.param(proxies.with_envoy, id="envoy"),
]


class FailingBackend:
    """A backend that answers 500, each time after as many seconds."""

    def __init__(self, seconds: float) -> None:
        self.requests = 0
        self._seconds = seconds

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            await reader.readuntil(b"\r\n\r\n")
            self.requests += 1
            await be_slow(self._seconds)
            writer.write(b"HTTP/1.1 500 Failed\r\nContent-Length: 0\r\n\r\n")


@pytest.mark.process
@pytest.mark.parametrize("runner", RUNNERS)
@pytest.mark.parametrize("backoff", [{}, {"backoff": "1ms"}], ids=["at once", "with pause"])
async def test_request_timeout_ends_retries(
    runner: Runner, tmp_path: Path, backoff: dict[str, str]
) -> None:
    """HTTPRouteTimeouts.request: "the maximum duration for a gateway to respond", 504 after it."""
    rule = {
        "backendRefs": [BACKEND],
        "retry": {"attempts": 4, "codes": [500], **backoff},
        "timeouts": {"request": "500ms"},
    }
    backend = FailingBackend(0.3)
    async with served(runner, tmp_path, 0, rule, answer=backend.answer) as proxy:
        assert (await proxy.send("/a"))[0] == 504
    assert backend.requests <= 3, "at 0, 0.3 and at most 0.5 s"


@pytest.mark.process
@pytest.mark.parametrize("runner", RUNNERS)
@pytest.mark.parametrize("attempts", [1, 2, 4])
async def test_retries_before_the_request_timeout_are_all_made(
    runner: Runner, tmp_path: Path, attempts: int
) -> None:
    rule = {
        "backendRefs": [BACKEND],
        "retry": {"attempts": attempts, "codes": [500]},
        "timeouts": {"request": "1h", "backendRequest": "1m"},
    }
    backend = FailingBackend(0.0)
    async with served(runner, tmp_path, 0, rule, answer=backend.answer) as proxy:
        assert (await proxy.send("/a"))[0] == 500
    assert backend.requests == 1 + attempts


@pytest.mark.process
@pytest.mark.parametrize("runner", RUNNERS)
async def test_request_timeout_ends_the_pause_before_a_retry(
    runner: Runner, tmp_path: Path
) -> None:
    rule = {
        "backendRefs": [BACKEND],
        "retry": {"attempts": 4, "codes": [500], "backoff": "1h"},
        "timeouts": {"request": "400ms"},
    }
    backend = FailingBackend(0.0)
    async with served(runner, tmp_path, 0, rule, answer=backend.answer) as proxy, patience.limit():
        assert (await proxy.send("/a"))[0] == 504
    assert backend.requests == 1


@given(st.integers(1, 3_600_000), st.integers(0, 3_600_000))
@example(62, 62)
@example(62, 61)
@example(9_999, 10_000)
@example(999, 1_000)
def test_pattern_matches_times_that_are_not_less(least: int, time: int) -> None:
    written = f"{time // 1000}.{time % 1000:03}"
    assert bool(re.match(at_least(least), written)) == (time >= least)


@pytest.mark.parametrize(
    ("attempt_seconds", "steps"),
    [
        (0.0, (0, 1, 2, 3, 4, 5, 6, 7, 8)),
        (2.0, (0, 1, 8)),
        (0.5, (0, 8)),
        (9.0, (0, 1, 2, 3, 4, 5, 6, 7, 8)),
    ],
)
def test_only_timeouts_below_that_of_an_attempt_have_a_location(
    attempt_seconds: float, steps: tuple[int, ...]
) -> None:
    assert RetrySelection("@r", 8.0, attempt_seconds, 2).steps == steps


def onward_of(following: Directive) -> str:
    """Return the value for requests that are sent again."""
    rows = [row for row in following.block or () if isinstance(row, Directive) and row.arguments]
    return rows[0].arguments[0]


def paused(deadline: RetrySelection, time: str) -> float:
    """Return the pause after a failure at this time of a request, in seconds."""
    following, *_, pause = deadline.maps()
    assert pause.arguments[0] == "$request_time"
    assert deadline.after_failure == f'"@r_${{{following.arguments[1].removeprefix("$")}}}"'
    assert onward_of(following) == f'"${{{pause.arguments[1].removeprefix("$")}}}"'
    _volatile, *rows = (row for row in pause.block or () if isinstance(row, Directive))
    for row in rows:
        pattern = row.name.strip('"').removeprefix("~").replace("\\\\", "\\")
        if row.name == "default" or re.search(pattern, time):
            return deadline.pauses.get(f"@r_{row.arguments[0]}", 0.0)
    raise AssertionError(f"no pause at {time}")


@pytest.mark.parametrize(
    ("backoff", "pauses"),
    [
        # A pause that an eighth of the timeout can hold ends in time.
        (0.5, {"0.000": 0.5, "7.999": 0.5, "8.000": 0.0}),
        (1.0, {"0.000": 1.0, "7.999": 1.0, "8.000": 0.0}),
        (2.5, {"0.000": 2.5, "5.999": 2.5, "6.000": 2.0, "7.000": 1.0, "8.000": 0.0}),
        (60.0, {"0.000": 8.0, "0.999": 8.0, "1.000": 7.0, "7.999": 1.0, "99.000": 0.0}),
    ],
)
def test_pause_is_no_longer_than_the_parts_of_the_timeout_that_are_left(
    backoff: float, pauses: dict[str, float]
) -> None:
    deadline = RetrySelection("@r", 8.0, 0.0, 2, backoff)
    assert {time: paused(deadline, time) for time in pauses} == pauses


@pytest.mark.parametrize(
    ("backoff", "parts"),
    [(0.0, []), (1.0, [8]), (2.5, [1, 2, 8]), (60.0, [1, 2, 3, 4, 5, 6, 7, 8])],
)
def test_only_pauses_that_can_exceed_what_is_left_have_a_location_for_each_part(
    backoff: float, parts: list[int]
) -> None:
    deadline = RetrySelection("@r", 8.0, 0.0, 2, backoff)
    assert list(deadline.pauses) == [f"@r_paused_{part}" for part in parts]
    # Without a pause a failure leads to the next attempt.
    onward = onward_of(deadline.maps()[0]).strip('"')
    assert (deadline.onward == f'"@r_{onward}"') == (not parts)
