"""Whether a certificate has one of the names asked for (RFC 9525). Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gatehouse.sidecars.tls_connector.config import Name

Certificate = Mapping[str, Any]
"""As ``ssl`` gives it (``getpeercert``)."""


def matches_any_san(certificate: Certificate, names: Sequence[Name]) -> bool:
    """Whether one of ``names`` is a subject alternative name; the common name never counts."""
    return any(_is(name, kind, value) for kind, value in _names(certificate) for name in names)


def shown(certificate: Certificate) -> str:
    """Give a certificate's names for a message. What the peer wrote there may be anything."""
    found = [f"{kind}:{value}" for kind, value in _names(certificate)]
    text = ", ".join(found) or "no names"
    return ascii(text[:300])[1:-1]


def _names(certificate: Certificate) -> Sequence[tuple[str, str]]:
    found: Sequence[tuple[str, str]] = certificate.get("subjectAltName", ())
    return found


def _is(wanted: Name, kind: str, value: str) -> bool:
    if wanted.kind == "uri":
        return kind == "URI" and value == wanted.value
    return kind == "DNS" and _covers(value.lower(), wanted.value.lower())


def _covers(presented: str, wanted: str) -> bool:
    """Whether a name in a certificate is the one wanted, or a wildcard over its first label.

    A wildcard that is wanted is no pattern: only the same wildcard is the same name.
    """
    if presented == wanted:
        return True
    star, _, parent = presented.partition(".")
    label, _, rest = wanted.partition(".")
    # As OpenSSL: no wildcard stands for all names under a top-level domain.
    return star == "*" and "." in parent and rest == parent and label not in ("", "*")
