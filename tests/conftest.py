"""Options and fixtures that every suite shares."""

from __future__ import annotations

import pytest
from kube_apiserver import kube_apiserver

__all__ = ["kube_apiserver"]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--refresh-golden",
        action="store_true",
        default=False,
        help="rewrite the expected output in the golden files instead of comparing",
    )
