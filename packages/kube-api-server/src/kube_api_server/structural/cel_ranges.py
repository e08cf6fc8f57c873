"""Ranges of sizes and costs in estimates of the cost of CEL rules."""

from __future__ import annotations

import math

import msgspec

LARGEST_COST = 2**64 - 1
"""Largest size and cost. Sums and products do not exceed it."""

TRAVERSAL = 0.1
"""Cost of reading one character of a string."""

TRAVERSAL_AND_COPY = 2 * TRAVERSAL

EXPRESSION = 0.25
"""Cost of one character of a regular expression for each character that it reads."""


class Range(msgspec.Struct, frozen=True):
    """A size or a cost, from the least to the most that is possible."""

    least: int
    most: int

    def __add__(self, other: Range) -> Range:
        return _limited(self.least + other.least, self.most + other.most)

    def __mul__(self, other: Range) -> Range:
        return _limited(self.least * other.least, self.most * other.most)

    def scaled(self, factor: float) -> Range:
        """Return the products with a factor, rounded up."""
        return _limited(math.ceil(self.least * factor), math.ceil(self.most * factor))

    def union(self, other: Range) -> Range:
        """Return the smallest range that includes both."""
        return Range(min(self.least, other.least), max(self.most, other.most))


def _limited(least: int, most: int) -> Range:
    return Range(min(least, LARGEST_COST), min(most, LARGEST_COST))


def exactly(number: int) -> Range:
    """Return the range of one number."""
    return Range(number, number)


UNKNOWN_RANGE = Range(0, LARGEST_COST)
NOTHING, ONE = exactly(0), exactly(1)


class EntrySizes(msgspec.Struct, frozen=True):
    """Sizes of the entries of a list or map that a rule creates."""

    of_list: bool
    key: Range
    value: Range

    def union(self, other: EntrySizes | None) -> EntrySizes | None:
        """Return the sizes of entries of either; None if those of the other are not known."""
        if other is None:
            return None
        return EntrySizes(self.of_list, self.key.union(other.key), self.value.union(other.value))
