"""The timer of the main loop, on both event loops: uvloop has no timer for very short delays."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
import uvloop

from fakes import patience
from gatehouse.controller.alarm import Alarm

LOOPS = (asyncio.new_event_loop, uvloop.new_event_loop)


@pytest.mark.parametrize("new_loop", LOOPS)
@pytest.mark.parametrize("delays", [(0.0, 0.0), (0.0001, 60.0), (60.0, 0.0)])
def test_earliest_of_several_delays_sets_the_event(
    new_loop: Callable[[], asyncio.AbstractEventLoop], delays: tuple[float, ...]
) -> None:
    async def wait() -> None:
        event = asyncio.Event()
        alarm = Alarm(event)
        for delay in delays:
            alarm.set([delay])
        await asyncio.wait_for(event.wait(), patience.SECONDS)

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(wait())


def test_alarm_without_delays_sets_no_timer() -> None:
    Alarm(asyncio.Event()).set([])
