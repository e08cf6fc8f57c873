"""A controller's memory follows what exists. Deleted objects and stopped controllers leave none."""

from __future__ import annotations

import asyncio
import gc
import logging
import sys
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import structlog
from click.testing import CliRunner

from fakes.authority import Authority
from fakes.gateway_estate import Estate
from gatehouse.cli.controller import controller_command
from gatehouse.compiler.frontends import gateway_api
from gatehouse.controller import change_log
from gatehouse.controller.compilation import Compilation
from gatehouse.controller.frozen_heap import FrozenHeap
from gatehouse.transports.agents import fleet

GATEWAYS = 24
WARM_ROUNDS, ROUNDS = 3, 4
"""Rounds in which caches with limits fill, and rounds that must leave nothing."""

MAX_LEFT_BLOCKS = 15
"""Maximum number of blocks of memory that remain of a Gateway, of the thousands that each takes:
texts of its name in caches with limits.

Blocks, because hash tables change their size in steps that have nothing to do with what is left.
"""


@pytest.fixture(autouse=True)
def log_as_installed() -> Iterator[None]:
    """Skip debug messages, as in the default configuration of the programs."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    yield
    structlog.reset_defaults()


async def blocks_after_round(estate: Estate, numbers: range) -> int:
    """Create Gateways, wait until their agents serve them, and remove them.

    Return the number of blocks of up to 512 bytes that Python has in use. To trace each block
    would take five times as much CPU.
    """
    for number in numbers:
        estate.add(number)
        estate.connect(number)
    await estate.rest()
    for number in numbers:
        await estate.remove(number)
    await estate.rest()
    gc.collect()
    return sys.getallocatedblocks()


async def test_deleted_gateways_and_their_objects_leave_no_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, heap: FrozenHeap
) -> None:
    monkeypatch.setattr(fleet, "SESSION_TTL_SECONDS", 0.0)
    # The log has a limit of its own.
    monkeypatch.setattr(change_log, "MAX_LOGGED_CHANGES", 10)
    estate = Estate(Authority(tmp_path), heap=heap)
    async with estate.running(2):
        blocks = [
            await blocks_after_round(estate, range(start, start + GATEWAYS))
            for start in range(100, 100 + (WARM_ROUNDS + ROUNDS) * GATEWAYS, GATEWAYS)
        ]
    assert (blocks[-1] - blocks[WARM_ROUNDS - 1]) / (ROUNDS * GATEWAYS) < MAX_LEFT_BLOCKS, blocks


def compilation(heap: FrozenHeap | None = None) -> Compilation:
    result = Compilation(gateway_api.ControllerSettings(bind="any"), heap)
    spec = {"controllerName": gateway_api.NGINX}
    result.put("GatewayClass", ("", "c"), {"metadata": {"name": "c"}, "spec": spec})
    return result


def put(of: Compilation, numbers: range, *, exist: bool) -> None:
    listener = {"name": "http", "port": 80, "protocol": "HTTP"}
    spec = {"gatewayClassName": "c", "listeners": [listener]}
    for number in numbers:
        metadata = {"name": f"gw{number}", "namespace": "ns", "uid": "u", "generation": 1}
        raw = {"metadata": metadata, "spec": spec}
        of.put("Gateway", ("ns", f"gw{number}"), raw if exist else None)


@pytest.fixture
def heap() -> Iterator[FrozenHeap]:
    yield FrozenHeap()
    gc.unfreeze()


class Cycle:
    """An object that only the garbage collector frees."""

    def __init__(self) -> None:
        self.itself = self


def test_garbage_of_a_frozen_heap_is_freed_when_objects_go(heap: FrozenHeap) -> None:
    controller = compilation(heap)
    put(controller, range(20), exist=True)
    cycle = Cycle()
    garbage = weakref.ref(cycle)
    controller.run()
    del cycle
    gc.collect()
    # Frozen with the objects of the first pass.
    assert garbage() is not None
    put(controller, range(20), exist=False)
    put(controller, range(20, 22), exist=True)
    controller.run()
    assert garbage() is None
    assert gc.get_freeze_count()


@pytest.mark.parametrize(
    "compiled", [Compilation.run, Compilation.prepare], ids=["leader", "standby"]
)
def test_collections_of_a_controller_leave_out_its_objects(
    heap: FrozenHeap, compiled: Callable[[Compilation], object]
) -> None:
    controller = compilation(heap)
    put(controller, range(20), exist=True)
    compiled(controller)
    frozen = gc.get_freeze_count()
    put(controller, range(20, 22), exist=True)
    compiled(controller)
    assert len(gc.get_objects()) < frozen / 10


def test_first_objects_arrive_without_collections(heap: FrozenHeap) -> None:
    with pytest.raises(OSError), heap.filling():
        assert not gc.isenabled()
        raise OSError
    assert gc.isenabled()


def test_abandoned_compilations_are_freed() -> None:
    controller = compilation()
    put(controller, range(5), exist=True)
    controller.run()
    engine = weakref.ref(controller._engine)
    del controller
    gc.collect()
    assert engine() is None


async def test_only_the_command_freezes_the_heap_of_its_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    heaps: list[FrozenHeap | None] = []

    async def run_controller(*_: Any, **__: Any) -> None:
        heaps.append(_[2])

    monkeypatch.setattr("gatehouse.controller.main.run_controller", run_controller)
    monkeypatch.setattr(
        "gatehouse.cli.run.run_until_signal",
        lambda part, **_: asyncio.run(part(asyncio.Event(), asyncio.Event())),
    )
    words = ("--agent-advertise-address=c:1", "--agent-ca-file=a")
    pair = ("--tls-cert-file=c", "--tls-private-key-file=k")
    await asyncio.to_thread(
        CliRunner().invoke, controller_command, [*words, *pair], catch_exceptions=False
    )
    assert [type(heap) for heap in heaps] == [FrozenHeap]
    frozen = gc.get_freeze_count()
    estate = Estate(Authority(tmp_path))
    async with estate.running(2):
        pass
    assert gc.get_freeze_count() <= frozen
