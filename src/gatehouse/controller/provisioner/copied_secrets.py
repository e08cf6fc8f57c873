"""Secrets of the control plane's namespace that data planes need beside them. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal

import msgspec

SECRET_USES = ("pull", "license", "usage-ca", "usage-client")
Use = Literal["pull", "license", "usage-ca", "usage-client"]
"""``pull``: of images; the others are NGINX Plus': its licence (key ``license.jwt``), authorities
(``ca.crt``) and a client certificate (``tls.crt``, ``tls.key``) for where it reports its use."""


class CopiedSecret(msgspec.Struct, frozen=True):
    """A Secret to be copied to where data planes run."""

    name: str
    """Of the source."""
    use: Use
    type: str = "Opaque"
    data: Mapping[str, str] = {}
    """Base64, as in the source."""

    def named(self, prefix: str) -> str:
        """Give the copy's name beside a Gateway's other objects."""
        return f"{prefix}-{self.name}"


class Source(msgspec.Struct, frozen=True):
    """A Secret that the installation names to be copied."""

    use: Use
    namespace: str
    name: str

    @classmethod
    def parse(cls, text: str) -> Source:
        """Read ``USE=namespace/name``; raises ValueError."""
        use, _, where = text.partition("=")
        namespace, slash, name = where.partition("/")
        if use not in SECRET_USES:
            raise ValueError(f"{text!r}: {use!r} is none of {', '.join(SECRET_USES)}")
        if not (slash and namespace and name) or "/" in name:
            raise ValueError(f"{text!r} is not USE=namespace/name")
        return cls(msgspec.convert(use, Use), namespace, name)


def read_all(
    sources: Iterable[Source], secret: Callable[[tuple[str, str]], Mapping[str, Any] | None]
) -> tuple[CopiedSecret, ...]:
    """Give what is to be copied now; ``secret`` gives a Secret by namespace and name."""
    found = (read(each.name, each.use, secret((each.namespace, each.name))) for each in sources)
    return tuple(each for each in found if each is not None)


def read(name: str, use: Use, source: Mapping[str, Any] | None) -> CopiedSecret | None:
    """Give a Secret as it is to be copied; None while there is none."""
    if source is None:
        return None
    return CopiedSecret(name, use, source.get("type") or "Opaque", source.get("data") or {})
