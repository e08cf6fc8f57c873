"""Reports of the use of shared limits become inputs of the compilation."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import pytest

from fakes.loop_story import BASE, GATEWAY, Story
from gatehouse.compiler.frontends.inputs import limit_use_key, sharing_key
from gatehouse.controller.compilation import Compilation
from gatehouse.dataplane import features
from gatehouse.incremental.query import Key


async def test_reported_use_of_limits_is_stored_and_removed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    inputs: dict[Key, Any] = {}
    put = Compilation.put_input

    def store(self: Compilation, key: Key, value: Any) -> bool:
        inputs[key] = value
        return put(self, key, value)

    monkeypatch.setattr(Compilation, "put_input", store)
    story, key = Story(), limit_use_key(GATEWAY, "c")
    task = asyncio.create_task(story.loop.run())
    try:
        story.fleet.say()
        story.apply(BASE)
        await story.until(lambda: story.fleet.bundles)
        story.fleet.say(limit_use={"c": {"s": 7}}, features=frozenset([features.LIMIT_SHARES]))
        await story.until(lambda: inputs.get(key) == {"pod": {"s": 7}})
        assert inputs[sharing_key(GATEWAY)] == frozenset(["pod"])
        story.fleet.say()
        await story.until(lambda: inputs[key] is None)
        assert inputs[sharing_key(GATEWAY)] == frozenset()
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
