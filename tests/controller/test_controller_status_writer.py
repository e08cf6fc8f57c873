"""Writes of statuses: order, conflicts and retries."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, cast

import pytest

from fakes import virtual_time
from gatehouse.apis.resources import GATEWAYS
from gatehouse.compiler.frontends import combined
from gatehouse.controller.status_writer import OnWritten, StatusWriter
from gatehouse.kube import client as kube

KEY = ("Gateway", "default", "g")


class FakeClient:
    """API server with one object, whose writes take a second and raise the given errors."""

    def __init__(self, *errors: kube.ApiError) -> None:
        self.errors = list(errors)
        self.attempts: list[tuple[float, str]] = []
        """Time in seconds and value of each attempt."""
        self.status = ""
        self.active = self.reads = self.version = 0

    async def update_status(self, _: object, body: Mapping[str, Any]) -> Mapping[str, Any]:
        self.attempts.append((asyncio.get_running_loop().time(), body["status"]["value"]))
        self.active += 1
        assert self.active == 1, "two workers write one status"
        await asyncio.sleep(1.0)
        self.active -= 1
        if self.errors:
            raise self.errors.pop(0)
        if body["metadata"]["resourceVersion"] != str(self.version):
            raise kube.Conflict(409, "Conflict", "changed")
        self.status = body["status"]["value"]
        self.version += 1
        return self.object()

    async def get(self, *_: object, **__: object) -> Mapping[str, Any]:
        self.reads += 1
        return self.object()

    def object(self) -> Mapping[str, Any]:
        version = {"resourceVersion": str(self.version)}
        return {"metadata": version, "status": {"value": self.status}}


@pytest.fixture(autouse=True)
def plain_statuses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a status be one value."""

    def merge(
        _kind: str, current: Mapping[str, Any], desired: str, _now: str
    ) -> Mapping[str, Any] | None:
        return None if current["value"] == desired else {"value": desired}

    monkeypatch.setattr(combined, "merge_combined_status", merge)


def play(
    client: FakeClient,
    *steps: tuple[float, Callable[[StatusWriter], None]],
    informer: Callable[[], Mapping[str, Any]] | None = None,
    on_written: OnWritten = lambda *_: None,
) -> None:
    """Call the writer at the given times in seconds while it runs.

    ``informer`` returns the object as the informer has it; default: the newest. ``on_written`` is
    called after each write.
    """
    known = informer or client.object

    async def main() -> None:
        writer = StatusWriter(
            cast(kube.Client, client),
            {KEY[0]: GATEWAYS},
            lambda _: known(),
            on_written,
        )
        running = asyncio.create_task(writer.run())
        for at, call in steps:
            await asyncio.sleep(at - asyncio.get_running_loop().time())
            call(writer)
        await asyncio.wait({running}, timeout=100.0)
        assert not running.done()
        running.cancel()
        await asyncio.wait({running})

    virtual_time.run(main())


def desire(value: str) -> Callable[[StatusWriter], None]:
    """Return a call that sets the desired status."""
    return lambda writer: writer.set_desired(KEY, cast(combined.Status, value))


def test_newest_status_is_written_after_an_older_one() -> None:
    client = FakeClient()
    play(client, (0.0, desire("a")), (0.2, desire("b")), (0.4, desire("c")))
    assert client.attempts == [(0, "a"), (1, "c")]
    assert client.status == "c"


def test_each_write_is_reported_with_the_status_before_it() -> None:
    """A failed write is not, and a stale object of the informer is not the status before."""
    writes: list[tuple[object, object]] = []
    stale = FakeClient().object()
    client = FakeClient(kube.Unavailable(0, "ConnectionFailed", "down"))
    play(
        client, (0.0, desire("a")), (10.0, desire("b")), informer=lambda: stale,
        on_written=lambda _, before, after: writes.append((before, after)),
    )  # fmt: skip
    assert writes == [({"value": ""}, {"value": "a"}), ({"value": "a"}, {"value": "b"})]


def test_conflicting_write_is_repeated_with_a_newer_object() -> None:
    client = FakeClient(kube.Conflict(409, "Conflict", "changed"))
    play(client, (0.0, desire("a")))
    assert client.attempts == [(0, "a"), (1, "a")]
    assert client.reads == 1


@pytest.mark.parametrize(("retry_after", "second"), [(None, 1.2), (0.1, 1.2), (7.0, 8.0)])
def test_failed_write_is_repeated_after_back_off(retry_after: float | None, second: float) -> None:
    client = FakeClient(kube.ApiError(429, "TooManyRequests", "", retry_after=retry_after))
    play(client, (0.0, desire("a")))
    assert [round(at, 3) for at, _ in client.attempts] == [0, second]


def test_status_of_deleted_object_is_not_written_again() -> None:
    gone = FakeClient(kube.NotFound(404, "NotFound", "gone"))
    play(gone, (0.0, desire("a")))
    assert len(gone.attempts) == 1
    forgotten = FakeClient(kube.ApiError(500, "InternalError", "failed"))
    play(forgotten, (0.0, desire("a")), (1.1, lambda writer: writer.forget(KEY)))
    assert len(forgotten.attempts) == 1


def test_writes_do_not_conflict_while_the_informer_is_late() -> None:
    client = FakeClient()
    stale = client.object()
    steps = [(at, desire(value)) for at, value in ((0.0, "a"), (1.1, "b"), (2.2, "c"))]
    play(client, *steps, informer=lambda: stale)
    assert [value for _, value in client.attempts] == ["a", "b", "c"]
    assert client.status == "c"
    assert client.reads == 0


def test_change_of_another_writer_is_corrected_when_the_informer_has_it() -> None:
    client = FakeClient()

    def overwrite(writer: StatusWriter) -> None:
        client.status, client.version = "other", client.version + 1
        writer.enqueue(KEY)

    play(client, (0.0, desire("a")), (1.1, overwrite))
    assert [value for _, value in client.attempts] == ["a", "a"]
    assert (client.status, client.reads) == ("a", 0)
