"""People who create, change and delete objects all the time, and notice what was done twice."""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from collections.abc import Iterator
from typing import Any

import aiohttp


class Writer:
    """One writer. No other writer changes its objects.

    An object is created under a name that was never used, changed from the version that was seen,
    and deleted. Each of these can be done once: a second time it is refused, so that a refusal says
    that the gateway asked again for something that a server had done already.
    """

    def __init__(self, http: aiohttp.ClientSession, path: str, host: str, number: int) -> None:
        self._http, self._path, self._host = http, path, host
        self._number = number
        self.answers: Counter[str] = Counter()
        """By what was asked and the status."""
        self.failures: list[tuple[float, str]] = []
        """Time of each failure, by the loop's clock, and its text."""
        self.made: set[str] = set()
        """Marks of objects without a name of their own that were answered with 201."""
        self.marks: set[str] = set()
        """All marks that were sent."""

    async def write(self) -> None:
        """Write until cancelled."""
        for count in itertools.count():
            await self._life(f"w{self._number}-{count}")
            await self._unnamed(f"{self._number}-{count}")

    async def _life(self, name: str) -> None:
        body: Any = {"metadata": {"name": name}, "data": {"n": "0"}}
        created = await self._ask("POST", "", body)
        if created is None:
            return
        version = created["metadata"]["resourceVersion"]
        body["metadata"]["resourceVersion"] = version
        body["data"]["n"] = "1"
        if await self._ask("PUT", f"/{name}", body) is not None:
            await self._ask("DELETE", f"/{name}", {})

    async def _unnamed(self, mark: str) -> None:
        """Create what the server names: twice, and there are two of them."""
        self.marks.add(mark)
        metadata = {"generateName": "g-", "labels": {"mark": mark}}
        if await self._ask("POST", "", {"metadata": metadata}) is not None:
            self.made.add(mark)

    async def _ask(self, method: str, rest: str, body: Any) -> Any:
        try:
            async with self._http.request(
                method, self._path + rest, json=body, server_hostname=self._host
            ) as answer:
                document = await answer.json()
                self.answers[f"{method} {answer.status}"] += 1
                if answer.status in (200, 201):
                    return document
                # client-go retries requests of any method after a Retry-After header.
                waits = "retry-after " if "Retry-After" in answer.headers else ""
                self._failed(f"{method} {answer.status} {waits}{document.get('message', '')}")
        except aiohttp.ClientError as error:
            self._failed(f"{method} {error!r}")
        return None

    def _failed(self, what: str) -> None:
        self.failures.append((asyncio.get_running_loop().time(), what))


def all_failures(writers: list[Writer]) -> Iterator[tuple[float, str]]:
    """Return all failures, in their order."""
    yield from sorted(failure for writer in writers for failure in writer.failures)
