"""Accepted differences between kube-apiserver and Gatehouse's API server."""

from __future__ import annotations

import functools
import re
from fnmatch import translate

import msgspec

from fakes.kube_parity.comparison import FactDifference
from fakes.kube_parity.table import DIRECTORY


class AcceptedDifference(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A behaviour that differs, and why it may."""

    title: str
    kubernetes: str
    gatehouse: str
    reason: str
    facts: tuple[str, ...]
    """Patterns of a request and a fact, separated by a bar."""


@functools.cache
def accepted_differences() -> tuple[AcceptedDifference, ...]:
    """Return the table."""
    text = (DIRECTORY / "differences.yaml").read_bytes()
    return msgspec.yaml.decode(text, type=tuple[AcceptedDifference, ...])


def unexpected(differences: list[FactDifference]) -> tuple[list[FactDifference], list[str]]:
    """Return the differences that are not accepted, and the patterns that match none."""
    left, unused = differences, []
    names = {difference: f"{difference.request} | {difference.fact}" for difference in differences}
    for accepted in accepted_differences():
        for pattern in accepted.facts:
            matches = re.compile(translate(pattern)).match
            matched = {item for item, name in names.items() if matches(name)}
            if not matched:
                unused.append(f"{accepted.title}: {pattern}")
            left = [item for item in left if item not in matched]
    return left, unused
