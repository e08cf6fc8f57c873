"""TLS contexts that are kept from one configuration to the next."""

from __future__ import annotations

import contextlib
import hashlib
import ssl
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import msgspec

from gatehouse.sidecars.base.service import InvalidConfigError


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


class ClientTlsFiles(msgspec.Struct, frozen=True):
    """Files of the TLS of a client, relative to the configuration; empty for none."""

    trust: str = ""
    """CA certificates. Without them, the peer's certificate may be any."""
    certificate: str = ""
    key: str = ""


@contextlib.contextmanager
def naming(subject: str) -> Iterator[None]:
    """Raise errors of a file as InvalidConfigError, which names ``subject``."""
    try:
        yield
    except OSError as error:
        raise InvalidConfigError(f"{subject}: {error.strerror}") from error


def client_context(
    cache: ContextCache, directory: Path, owner: str, files: ClientTlsFiles, alpn: str
) -> ssl.SSLContext:
    """Return the context of a client that checks the names of its peer after the handshake.

    ``owner`` is named in the InvalidConfigError that this raises if a file cannot be used.
    """

    def load() -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.options |= ssl.OP_NO_RENEGOTIATION
        if alpn:
            context.set_alpn_protocols([alpn])
        if files.trust:
            with naming(f"{owner}: {files.trust}"):
                context.load_verify_locations(directory / files.trust)
        else:
            context.verify_mode = ssl.CERT_NONE
        if files.certificate:
            with naming(f"{owner}: {files.certificate}"):
                context.load_cert_chain(directory / files.certificate, directory / files.key)
        return context

    contents = [alpn.encode()]
    for path in filter(None, msgspec.structs.astuple(files)):
        with naming(f"{owner}: {path}"):
            contents.append((directory / path).read_bytes())
    return cache.get(contents, load)
