"""A client outside of the cluster: requests over new and kept connections until its input ends.

``python -m cluster.traffic URL...`` prints one JSON document with the results at the end of its
standard input.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

import aiohttp

from cluster import layout, running

PAUSE_SECONDS = 0.02
"""Pause of a client between two requests."""

TIMEOUT = aiohttp.ClientTimeout(total=10)


class Step(NamedTuple):
    """Requests during a test, for the table at the end of a run."""

    name: str
    answered: int
    lost: int
    seconds: float


STEPS: list[Step] = []


class Results:
    """Responses and failures of one URL."""

    def __init__(self) -> None:
        self.answered = 0
        self.failures: list[str] = []

    def record(self, status: int | str) -> None:
        """Record the status of a response, or an error."""
        if status == 200:
            self.answered += 1
        else:
            self.failures.append(f"{time.strftime('%X')} {status}")


async def _client(url: str, results: Results, *, keep: bool) -> None:
    """Send POST requests, which no client library repeats."""
    connector = aiohttp.TCPConnector(force_close=not keep)
    async with aiohttp.ClientSession(connector=connector, timeout=TIMEOUT) as session:
        while True:
            try:
                async with session.post(url, data=b"x") as response:
                    await response.read()
                    results.record(response.status)
            except (aiohttp.ClientError, OSError, TimeoutError) as error:
                results.record(repr(error))
            await asyncio.sleep(PAUSE_SECONDS)


async def main(urls: list[str]) -> None:
    """Send requests to each URL until standard input ends. Print the results."""
    results = {url: Results() for url in urls}
    tasks = [
        asyncio.create_task(_client(url, own, keep=keep))
        for url, own in results.items()
        for keep in (True, False)
    ]
    await asyncio.to_thread(sys.stdin.read)
    # What is under way ends as it does for a user.
    await asyncio.sleep(1)
    for task in tasks:
        task.cancel()
    summary = {url: vars(own) for url, own in results.items()}
    print(json.dumps(summary))


@contextlib.contextmanager
def requests_to(*urls: str) -> Iterator[Counter[str]]:
    """Send requests from the client outside while the block runs.

    The counter has the number of responses by URL after the block. Raises AssertionError with the
    failures, and if no request was answered.
    """
    words = running.enter(sys.executable, "-m", "cluster.traffic", *urls, network=layout.CLIENT)
    answered: Counter[str] = Counter()
    started = time.monotonic()
    process = subprocess.Popen(
        words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=running.environment()
    )
    try:
        yield answered
        output, _ = process.communicate(timeout=running.SECONDS)
    finally:
        process.kill()
    results: dict[str, dict[str, Any]] = json.loads(output)
    lost = sum(len(own["failures"]) for own in results.values())
    name = os.environ["PYTEST_CURRENT_TEST"].partition("::")[2].partition(" ")[0]
    total = sum(own["answered"] for own in results.values())
    STEPS.append(Step(name, total, lost, time.monotonic() - started))
    failures = {url: own["failures"][:10] for url, own in results.items() if own["failures"]}
    answered.update({url: own["answered"] for url, own in results.items()})
    assert not failures, (failures, answered)
    assert all(answered[url] for url in urls), answered


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:]))
