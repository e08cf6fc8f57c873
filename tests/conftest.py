"""Options and fixtures that every suite shares."""

from __future__ import annotations

import collections
import gc
import itertools
import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, is_hypothesis_test, settings

from fakes import patience
from fakes.kube_apiserver import kube_apiserver
from fakes.peer_report import PeerReport
from fakes.required_tools import RequiredTools
from fakes.run_record import OutsideEvents, RunRecord

__all__ = ["kube_apiserver"]

SLOW = (HealthCheck.too_slow,)
settings.register_profile(
    "fixed",
    derandomize=True,
    database=None,
    deadline=None,
    print_blob=True,
    suppress_health_check=SLOW,
)
"""The same examples in every run: what a change breaks is broken by the change."""
FIXED_EXAMPLES = 100
"""Largest number of examples of a test in that profile. The other profile has all of them."""
settings.register_profile(
    "random",
    # Not the default where the variable CI is set.
    derandomize=False,
    database=None,
    deadline=None,
    print_blob=True,
    suppress_health_check=SLOW,
)
"""Other examples in every run, in another order; the seed is in the header of pytest's report."""
SEED = "hypothesis_seed"
"""Name of the seed in what worker processes get from the process that starts them."""
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "fixed"))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--refresh-golden",
        action="store_true",
        default=False,
        help="rewrite the expected output in the golden files instead of comparing",
    )
    parser.addoption(
        "--peers-report",
        type=Path,
        default=None,
        help="update this report with the results of tests with programs of other projects",
    )
    parser.addoption(
        "--peers-strict",
        action="store_true",
        default=False,
        help="fail skipped tests with programs of other projects if the programs' directory exists",
    )
    parser.addoption(
        "--peers-compare",
        type=Path,
        default=None,
        help="fail if the run has other tests with programs than this report",
    )
    parser.addoption(
        "--record",
        type=Path,
        default=None,
        help="append a line of JSON for each outcome to this file, which scripts/gate.py reads",
    )


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Register the plug-ins. Choose a seed where none is given, to show it."""
    names = ("--peers-report", "--peers-compare", "--peers-strict")
    config.pluginmanager.register(PeerReport(*map(config.getoption, names)))
    if os.environ.get("CI"):
        config.pluginmanager.register(RequiredTools())
    if record := config.getoption("--record"):
        config.pluginmanager.register(OutsideEvents())
        if not hasattr(config, "workerinput"):
            config.pluginmanager.register(RunRecord(record))
    if config.pluginmanager.hasplugin("timeout") and not config.option.timeout:
        config.option.timeout = float(config.getini("timeout")) * patience.FACTOR
    if _profile(config) == "random" and config.option.hypothesis_seed is None:
        worker = getattr(config, "workerinput", {})
        drawn = str(random.SystemRandom().randrange(1 << 32))
        config.option.hypothesis_seed = worker.get(SEED, drawn)


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Hand the seed to a worker process: all of them must have the tests in the same order."""
    node.workerinput[SEED] = node.config.option.hypothesis_seed


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Collect no garbage while modules are imported and tests collected: nearly all of it stays.

    What stays is left out of later collections of garbage.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.enable()


@pytest.fixture(autouse=True)
def collected_garbage(request: pytest.FixtureRequest) -> Iterator[None]:
    """Collect garbage after a test with processes: its unclosed connections are its own failure,
    and not that of a later test."""
    yield
    if any(request.node.get_closest_marker(name) for name in ("process", "long")):
        gc.collect()


@pytest.fixture(autouse=True, scope="module")
def collected_garbage_of_module() -> Iterator[None]:
    """Collect garbage after the fixtures of a module, as part of its last test.

    What is left, such as caches, stays. Later collections leave it out, which would otherwise cost
    each test some tenths of a second.
    """
    yield
    gc.collect()
    gc.freeze()


def pytest_report_header(config: pytest.Config) -> str:
    profile = _profile(config)
    if profile != "random":
        return f"hypothesis: profile {profile}"
    return (
        f"hypothesis: profile random; the same examples and order again: "
        f"HYPOTHESIS_PROFILE=random pytest --hypothesis-seed={config.option.hypothesis_seed}"
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Reject a test whose own settings would make a run differ from the next one, and asserted
    times outside of the evidence.

    A random run also has its files and property tests in another order. Limits of tests get the
    factor of :mod:`fakes.patience`, as the default limit does.
    """
    chosen = settings.get_profile(settings.get_current_profile_name())
    for item in items:
        if own := item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(own.args[0] * patience.FACTOR), append=False)
        if item.get_closest_marker("timing") and not item.get_closest_marker("long"):
            raise pytest.UsageError(f"{item.nodeid}: timing without long decides in the gate")
        test = getattr(item, "obj", None)
        used = getattr(test, "_hypothesis_internal_use_settings", None)
        if used is None:
            continue
        if used.derandomize != chosen.derandomize or used.database is not None:
            raise pytest.UsageError(f"{item.nodeid}: @settings override the Hypothesis profile")
        if chosen.derandomize and used.max_examples > FIXED_EXAMPLES:
            fewer = settings(used, max_examples=FIXED_EXAMPLES)
            test._hypothesis_internal_use_settings = fewer  # type: ignore[union-attr]
    if _profile(config) == "random":
        _shuffle_files(items, config.option.hypothesis_seed)
        _shuffle_property_tests(items, config.option.hypothesis_seed)


def _shuffle_files(items: list[pytest.Item], seed: object) -> None:
    """Put the files in another order, so that runs that end by a limit reach others each time."""
    files = collections.defaultdict(list)
    for item in items:
        files[item.path].append(item)
    order = [*files.values()]
    random.Random(str(seed)).shuffle(order)
    items[:] = itertools.chain.from_iterable(order)


def _shuffle_property_tests(items: list[pytest.Item], seed: object) -> None:
    """Exchange the places of the property tests of each file, in the same way for the same seed."""
    places = collections.defaultdict(list)
    for place, item in enumerate(items):
        if is_hypothesis_test(getattr(item, "obj", None)):
            places[item.path].append(place)
    for own in places.values():
        shuffled = [items[place] for place in own]
        random.Random(str(seed)).shuffle(shuffled)
        for place, item in zip(own, shuffled, strict=True):
            items[place] = item


def _profile(config: pytest.Config) -> str:
    chosen: str = config.getoption("--hypothesis-profile") or settings.get_current_profile_name()
    return chosen
