"""Division of a Gateway's ceiling among namespaces. No I/O.

The claims of a namespace are taken oldest first. A claim that brings the sum of its namespace to
less precedes one that brings the sum of another namespace to more. So each namespace can have an
equal share, however many older claims others have, and what it does not use is left to the others.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from heapq import heapify, heappop, heappush

import msgspec

from gatehouse.incremental.query import Key

Age = tuple[str, Key]
"""Creation time and key of an object: unique, and in the order of age."""


class SharedClaim(msgspec.Struct, frozen=True):
    """Amounts that an object claims, by the name of the ceiling."""

    age: Age
    amounts: Mapping[str, int]

    @property
    def namespace(self) -> str:
        """Namespace of the object."""
        return self.age[1][1]


def exceeding_claims(
    claims: Iterable[SharedClaim], ceilings: Mapping[str, int]
) -> dict[Key, tuple[str, ...]]:
    """Return the objects whose claims do not fit, each with the names of the exceeded ceilings.

    The order follows the ceiling of which a namespace has the largest part. A claim that does not
    fit counts for nothing, and a later, smaller one can still fit.
    """
    waiting: dict[str, list[SharedClaim]] = {}
    for claim in sorted(claims, key=lambda claim: claim.age, reverse=True):
        waiting.setdefault(claim.namespace, []).append(claim)
    sums = {namespace: Counter[str]() for namespace in waiting}
    total, excess = Counter[str](), dict[Key, tuple[str, ...]]()

    def turn(namespace: str) -> tuple[float, Age, str]:
        claim, own = waiting[namespace][-1], sums[namespace]
        parts = (
            (own[name] + amount) / ceilings[name] if ceilings[name] else float("inf")
            for name, amount in claim.amounts.items()
        )
        return max(parts, default=0.0), claim.age, namespace

    turns = [turn(namespace) for namespace in waiting]
    heapify(turns)
    while turns:
        namespace = heappop(turns)[-1]
        claim = waiting[namespace].pop()
        names = (name for name, amount in claim.amounts.items() if amount)
        exceeded = tuple(
            name for name in names if total[name] + claim.amounts[name] > ceilings[name]
        )
        if exceeded:
            excess[claim.age[1]] = exceeded
        else:
            total.update(claim.amounts)
            sums[namespace].update(claim.amounts)
        if waiting[namespace]:
            heappush(turns, turn(namespace))
    return excess


def fair_numbers(ages: Mapping[str, list[Age]], ceiling: int) -> dict[str, int]:
    """Return how many of its objects each namespace can have, if each object claims one.

    ``ages``: the objects of each namespace, oldest first. The result is that of
    :func:`exceeding_claims`, in less time for many objects.
    """
    left, level = ceiling, 0
    for place, number in enumerate(sorted(map(len, ages.values()))):
        level = left // (len(ages) - place)
        if number > level:
            break
        left -= number
    numbers = {namespace: min(len(own), level) for namespace, own in ages.items()}
    more = sorted((own[level], namespace) for namespace, own in ages.items() if len(own) > level)
    for _, namespace in more[: ceiling - sum(numbers.values())]:
        numbers[namespace] += 1
    return numbers
