"""The page of known behaviours names tests that exist."""

from __future__ import annotations

import ast
from pathlib import Path

import known_behaviours
import pytest

TESTS = Path(__file__).parents[1]
NAMES = sorted(
    {
        name
        for section in known_behaviours.known_behaviours().values()
        for item in section
        for name in item.tests
    }
)


@pytest.mark.parametrize("name", NAMES)
def test_test_of_a_known_behaviour_exists(name: str) -> None:
    file, _, function = name.partition("::")
    tree = ast.parse((TESTS / file).read_text("utf-8"))
    tests = {
        node.name
        for node in tree.body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.name.startswith("test_")
    }
    assert function in tests if function else tests


def test_known_behaviours_have_tests_and_values_for_both_proxies() -> None:
    for section in known_behaviours.known_behaviours().values():
        for item in section:
            assert item.tests, item.subject
            assert item.nginx, item.subject
            assert item.envoy, item.subject
