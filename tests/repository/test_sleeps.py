"""Tests wait for conditions, and not for a fixed time."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
SLEEPS = {
    "cluster": "programs on a machine of a cluster, without the modules of tests",
    "conformance": "a program that waits for a whole cluster",
    "fakes/durations.py": "the named times",
    "fakes/patience.py": "the pause between two looks",
    "fakes/reader.py": "the pause in which a reader of a document tries a command again",
    "fakes/run_record.py": "a thread that samples the machine, and ends with the tests",
}
"""Modules and directories that sleep for a fixed time."""
LASTING = {
    "compiler/backends/test_backends_envoy_passthrough.py": "open connections outlive the drain",
    "compiler/backends/test_backends_kube_metrics.py": "periods of Envoy leave no trace",
    "controller/test_controller_provisioning.py": "the API server is away",
    "differential/proxies.py": "a dying NGINX still writes why",
    "e2e/test_e2e_changes.py": "traffic of a given duration",
    "e2e/test_e2e_field_agent.py": "agents of NGINX have whole seconds, and may end late",
    "e2e/test_e2e_hosted_changes.py": "the DNS is away for longer than HAProxy tolerates",
    "e2e/test_e2e_trust.py": "an agent reads its token at times",
    "fakes/killed_proxy.py": "a proxy is steady before it is killed",
    "faults/test_faults_kube_apiservers.py": "aiohttp closes TLS connections in the background",
    "faults/test_faults_proxy.py": "stopped processes do not respond",
    "faults/test_faults_sockets.py": "a proxy is steady before it is killed",
    "peers/test_peers_ngf_migration.py": "traffic of a given duration",
    "security/test_full_disk.py": "the disk is full",
    "transports/test_transports_recorded_agents.py": "agents of NGINX send messages after a result",
}
"""Modules that use `durations.last`."""
ONLY_IN_LOOPS = ("pause", "pause_thread", "pace")


def is_sleep(call: ast.Call) -> bool:
    """Return whether a call sleeps for a fixed time. Zero seconds only let other tasks run."""
    if ast.unparse(call.func).rpartition(".")[2] != "sleep" or not call.args:
        return False
    (seconds,) = call.args
    if isinstance(seconds, ast.Constant):
        return bool(seconds.value)
    return ast.unparse(seconds).rpartition(".")[2].isupper()


def calls(node: ast.AST, *, in_loop: bool = False) -> Iterator[tuple[ast.Call, bool]]:
    """Yield each call, and whether its function has it in a loop."""
    for child in ast.iter_child_nodes(node):
        inside = in_loop or isinstance(node, ast.For | ast.AsyncFor | ast.While)
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            inside = False
        if isinstance(child, ast.Call):
            yield child, inside
        yield from calls(child, in_loop=inside)


def faults(text: str) -> list[str]:
    """Return the calls of a module that wait for a fixed time."""
    tree = ast.parse(text)
    if "virtual_time" in {name.name for name in ast.walk(tree) if isinstance(name, ast.alias)}:
        return []  # Its clock does not wait.
    result = []
    for call, in_loop in calls(tree):
        name = ast.unparse(call.func).removeprefix("patience.").removeprefix("durations.")
        if is_sleep(call) or (name in ONLY_IN_LOOPS and not in_loop):
            result.append(f"{call.lineno}: {ast.unparse(call)}")
    return result


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("sleep(0)", 0), ("asyncio.sleep(1)", 1), ("time.sleep(0.1)", 1), ("sleep(SECONDS)", 1),
        ("sleep(limits.PAUSE_SECONDS)", 1), ("sleep(end - now)", 0), ("sleep(self.delay)", 0),
        ("patience.pause()", 1), ("while waiting:\n  patience.pause()", 0), ("pace(1)", 1),
        ("for n in x:\n  pace(1)", 0), ("for n in x:\n  def f():\n    pace(1)", 1),
        ("from fakes import virtual_time\nsleep(1)", 0), ("f('sleep(1)')", 0),
    ],
)  # fmt: skip
def test_fixed_times_are_found(text: str, expected: int) -> None:
    assert len(faults(text)) == expected


def modules() -> Iterator[tuple[str, str]]:
    """Yield path and content of all modules of tests, without those of the table."""
    for path in sorted([*TESTS.rglob("*.py"), *TESTS.parent.glob("packages/*/tests/**/*.py")]):
        base = TESTS if path.is_relative_to(TESTS) else TESTS.parent
        name = path.relative_to(base).as_posix()
        if not {name, name.partition("/")[0]} & SLEEPS.keys() and path != Path(__file__):
            yield name, path.read_text(encoding="utf-8")


def test_no_module_waits_for_a_fixed_time() -> None:
    waits = {name: result for name, text in modules() if (result := faults(text))}
    assert not waits, "see fakes/patience.py and fakes/durations.py"


def test_modules_in_which_something_lasts_are_listed() -> None:
    users = {
        name
        for name, text in modules()
        for call, _ in calls(ast.parse(text))
        if ast.unparse(call.func) in ("last", "durations.last")
    }
    assert users == LASTING.keys()


def test_listed_exceptions_exist() -> None:
    assert all((TESTS / name).exists() for name in SLEEPS)
