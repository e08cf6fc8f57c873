"""Tests wait for what must come with one limit, which `GATEHOUSE_TIME_FACTOR` scales."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from fakes import patience
from fakes.source_trees import SEARCH_PATH

TESTS = Path(__file__).parents[1]
MODULES = sorted([*TESTS.rglob("*.py"), *TESTS.parent.glob("packages/*/tests/**/*.py")])
PLACES = {"asyncio.timeout": 0, "asyncio.wait_for": 1}
"""The argument that is a limit."""
IN_THREADS = {".wait": 1, ".acquire": 2}
"""The argument of `asyncio.to_thread` that is a limit, by the end of the function's name."""
WITH_TIMEOUT = ("asyncio.wait", "subprocess.run", ".communicate", ".wait")
LAST_NAMES = {name.rpartition(".")[2] for name in (*PLACES, *WITH_TIMEOUT, "asyncio.to_thread")}
"""The last names of functions with a limit. Most calls are of other functions."""
LIMITED_CALL = re.compile(rf"\.\s*({'|'.join(sorted(LAST_NAMES))})\s*\(")
"""Text of each module with such a call."""
KUBECTL_TIMEOUT = re.compile(r"--timeout=\d+[smh]")
MAX_EXPECTED_SECONDS = 5
"""Largest limit that a test may expect to pass: it waits for what must not come."""

LIMITED = """
import pytest
from fakes import patience

@pytest.fixture
def limits(request):
    own = request.node.get_closest_marker("timeout")
    return own.args[0] if own else request.config._env_timeout, patience.SECONDS

def test_default(limits):
    assert limits == (90, 180)

@pytest.mark.timeout(100)
def test_own(limits):
    assert limits == (150, 180)
"""


def test_time_factor_scales_limits_of_tests_and_of_waiting(tmp_path: Path) -> None:
    (tmp_path / "test_limited.py").write_text(LIMITED)
    (tmp_path / "pytest.ini").write_text("[pytest]\ntimeout = 60\n")
    environ = {"PYTHONPATH": f"{TESTS}:{SEARCH_PATH}", "GATEHOUSE_TIME_FACTOR": "1.5"}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "conftest", "-p", "no:cacheprovider"],
        cwd=tmp_path, env=os.environ | environ, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert "2 passed" in done.stdout, done.stdout


async def test_waiting_returns_the_value_that_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    values = iter(["", 0, "three", "four"])

    async def following() -> object:
        return next(values)

    async def never() -> None:
        return None

    assert await patience.until(following) == "three"
    assert await patience.until(lambda: next(values)) == "four"
    monkeypatch.setattr(patience, "SECONDS", 0.05)
    with pytest.raises(TimeoutError, match=r"never does not hold after 0\.05 s: only this"):
        await patience.until(never, lambda: "only this")


async def test_timeout_of_a_condition_itself_is_raised_as_it_is() -> None:
    async def unanswered() -> None:
        raise TimeoutError("no answer")

    with pytest.raises(TimeoutError, match=r"^no answer$"):
        await patience.until(unanswered)


def test_waiting_without_an_event_loop_tells_what_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    values = iter(["", 0, "three"])
    assert patience.wait_until(lambda: next(values)) == "three"
    monkeypatch.setattr(patience, "SECONDS", 0.05)
    with pytest.raises(AssertionError, match="only this"):
        patience.wait_until(lambda: False, lambda: "only this")


def limits(tree: ast.Module) -> Iterator[tuple[int, float]]:
    """Yield the line and number of each limit of waiting that is a number."""
    numbers = {
        target.id: statement.value
        for statement in tree.body
        if isinstance(statement, ast.Assign)
        for target in statement.targets
        if isinstance(target, ast.Name)
    }
    for call in ast.walk(tree):
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute):
            continue
        if call.func.attr not in LAST_NAMES:
            continue
        name = ast.unparse(call.func)
        place = 0 if name.endswith(".wait") else PLACES.get(name)
        if name == "asyncio.to_thread":
            function = ast.unparse(call.args[0])
            place = next((n for end, n in IN_THREADS.items() if function.endswith(end)), None)
        if place is None and not name.endswith(WITH_TIMEOUT):
            continue
        place = len(call.args) if place is None else place
        named = [item.value for item in call.keywords if item.arg == "timeout"]
        for value in (*call.args[place : place + 1], *named):
            number = numbers.get(value.id) if isinstance(value, ast.Name) else value
            if isinstance(number, ast.Constant) and isinstance(number.value, int | float):
                yield call.lineno, number.value


def expected(tree: ast.Module) -> set[int]:
    """Return the lines on which TimeoutError is caught or expected."""
    return {
        line
        for node in ast.walk(tree)
        if isinstance(node, ast.With | ast.AsyncWith | ast.Try)
        for part in (node.handlers if isinstance(node, ast.Try) else node.items)
        if "TimeoutError" in ast.unparse(part).split(":")[0]
        for line in range(node.lineno, (node.end_lineno or 0) + 1)
    }


def test_waiting_for_what_must_come_has_no_limit_of_its_own() -> None:
    own = []
    for path in MODULES:
        text = path.read_text(encoding="utf-8")
        if not LIMITED_CALL.search(text):
            continue
        tree = ast.parse(text)
        numbers = list(limits(tree))
        if not numbers:
            continue
        if "virtual_time" in {name.name for name in ast.walk(tree) if isinstance(name, ast.alias)}:
            continue  # Its clock does not depend on the machine.
        absent = expected(tree)
        for line, number in numbers:
            if number and not (number <= MAX_EXPECTED_SECONDS and line in absent):
                own.append(f"{path}:{line}: {number} s")
    assert not own, "see fakes/patience.py"


def test_commands_of_kubectl_have_no_limit_of_their_own() -> None:
    own = {
        path: matches
        for path in MODULES
        if (matches := KUBECTL_TIMEOUT.findall(path.read_text(encoding="utf-8")))
    }
    assert own.keys() <= {Path(__file__)}, "see fakes/patience.py"


def test_ports_are_of_this_process_alone() -> None:
    users = {
        path
        for path in MODULES
        if "free_ports" in (text := path.read_text(encoding="utf-8"))
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.ImportFrom) and node.module == "gatehouse.standalone.free_ports"
        for name in node.names
        if name.name == "free_port"
    }
    assert not users, "see fakes/loopback.py"
