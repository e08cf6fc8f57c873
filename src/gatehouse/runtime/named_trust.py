"""Imports without the CA certificates of the machine, which aiohttp loads when it is imported.

It loads them for connections that name no trust, in 50 to 100 ms of each process. Gatehouse names
the trust of each TLS connection; one without a name trusts nothing.
"""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def only_named_trust() -> Iterator[None]:
    """Create contexts of TLS clients without CA certificates meanwhile."""
    create = ssl.create_default_context
    ssl.create_default_context = _without_authorities
    try:
        yield
    finally:
        ssl.create_default_context = create


def _without_authorities(*_: Any, **__: Any) -> ssl.SSLContext:
    return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
