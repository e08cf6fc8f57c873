"""Lists of names in messages."""

from __future__ import annotations

from collections.abc import Sequence


def shortened_list(names: Sequence[str], limit: int) -> str:
    """Join names; of more than ``limit``, the first ones and the number of the others."""
    more = len(names) - limit
    return ", ".join(names[:limit]) + (f" and {more} more" if more > 0 else "")
