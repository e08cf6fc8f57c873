"""TLS contexts that are kept from one configuration to the next."""

from __future__ import annotations

import hashlib
import ssl
from collections.abc import Callable, Iterable


class ContextCache:
    """TLS contexts by the content of their files.

    A sidecar is configured several times for each change. Loading the CA certificates of a system
    takes 10 ms, and files that did not change are those of another revision each time.
    """

    def __init__(self) -> None:
        self._contexts: dict[bytes, ssl.SSLContext] = {}
        self._used: dict[bytes, ssl.SSLContext] = {}
        """Contexts of the configuration that is being loaded."""

    def get(self, contents: Iterable[bytes], make: Callable[[], ssl.SSLContext]) -> ssl.SSLContext:
        """Return the context of these contents, made once."""
        digests = (hashlib.sha256(content).digest() for content in contents)
        key = b"".join(digests)
        context = self._used.get(key) or self._contexts.get(key) or make()
        self._used[key] = context
        return context

    def forget_unused(self) -> None:
        """Forget the contexts that were not used since the last call."""
        self._contexts, self._used = self._used, {}
