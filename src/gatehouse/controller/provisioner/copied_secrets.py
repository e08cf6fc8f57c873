"""Secrets that are copied to the namespaces of data planes. No I/O."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal

import msgspec

SECRET_USES = ("pull", "license", "usage-ca", "usage-client")
Use = Literal["pull", "license", "usage-ca", "usage-client"]
"""``pull``: image pull secret. The others are for NGINX Plus: its licence (key ``license.jwt``), CA
certificates (``ca.crt``) and client certificate (``tls.crt``, ``tls.key``) for usage reports."""


class CopiedSecret(msgspec.Struct, frozen=True):
    """A Secret to copy beside data planes."""

    name: str
    """Name of the source."""
    use: Use
    type: str = "Opaque"
    data: Mapping[str, str] = {}
    """Base64-encoded, as in the source."""

    def named(self, prefix: str) -> str:
        """Return the name of the copy, with the prefix of a Gateway's objects."""
        return f"{prefix}-{self.name}"


class SecretSource(msgspec.Struct, frozen=True):
    """A Secret that the options name for copying."""

    use: Use
    namespace: str
    name: str

    @classmethod
    def parse(cls, text: str) -> SecretSource:
        """Parse ``USE=namespace/name``. Raises ValueError."""
        use, _, source = text.partition("=")
        namespace, slash, name = source.partition("/")
        if use not in SECRET_USES:
            raise ValueError(f"invalid value {text!r}: use must be one of {', '.join(SECRET_USES)}")
        if not (slash and namespace and name) or "/" in name:
            raise ValueError(f"invalid value {text!r}: must be USE=namespace/name")
        return cls(msgspec.convert(use, Use), namespace, name)


def read_all(
    sources: Iterable[SecretSource], secret: Callable[[tuple[str, str]], Mapping[str, Any] | None]
) -> tuple[CopiedSecret, ...]:
    """Return the Secrets to copy now. ``secret`` returns a Secret by namespace and name."""
    copies = (_read(item.name, item.use, secret((item.namespace, item.name))) for item in sources)
    return tuple(item for item in copies if item is not None)


def _read(name: str, use: Use, source: Mapping[str, Any] | None) -> CopiedSecret | None:
    """Return the copy of a Secret; None if the source does not exist."""
    if source is None:
        return None
    return CopiedSecret(name, use, source.get("type") or "Opaque", source.get("data") or {})
