"""Import of the modules that a process consists of, with little CPU."""

from __future__ import annotations

import gc
import importlib
import ssl
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType


def import_at_start(name: str) -> ModuleType:
    """Import a module without collections of garbage and the CA certificates of the machine.

    Nearly everything that an import creates stays. Collections would visit it again and again, in
    up to a quarter of the CPU time of a start. Later collections leave it out.
    """
    if name in sys.modules:
        return sys.modules[name]
    enabled = gc.isenabled()
    gc.disable()
    try:
        with _only_named_trust():
            return importlib.import_module(name)
    finally:
        gc.freeze()
        if enabled:
            gc.enable()


@contextmanager
def _only_named_trust() -> Iterator[None]:
    """Create contexts of TLS clients without CA certificates meanwhile.

    aiohttp loads those of the machine when it is imported, for connections that name no trust, in
    50 to 100 ms of each process, and as often again for connections that verify nothing. Gatehouse
    names the trust of each TLS connection; one without a name trusts nothing.
    """
    load = ssl.SSLContext.set_default_verify_paths
    ssl.SSLContext.set_default_verify_paths = _load_nothing  # type: ignore[method-assign,assignment]
    try:
        yield
    finally:
        ssl.SSLContext.set_default_verify_paths = load  # type: ignore[method-assign]


def _load_nothing(_: ssl.SSLContext) -> None:
    """Load no certificates."""
