"""Imports without the CA certificates of the machine, which aiohttp loads when it is imported.

It loads them for connections that name no trust, in 50 to 100 ms of each process, and as often
again for connections that verify nothing. Gatehouse names the trust of each TLS connection; one
without a name trusts nothing.
"""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def only_named_trust() -> Iterator[None]:
    """Create contexts of TLS clients without CA certificates meanwhile."""
    load = ssl.SSLContext.set_default_verify_paths
    ssl.SSLContext.set_default_verify_paths = _load_nothing  # type: ignore[method-assign,assignment]
    try:
        yield
    finally:
        ssl.SSLContext.set_default_verify_paths = load  # type: ignore[method-assign]


def _load_nothing(_: ssl.SSLContext) -> None:
    """Load no certificates."""
