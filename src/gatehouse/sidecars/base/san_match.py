"""Matching of subject alternative names (RFC 9525). No I/O."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import msgspec

_Certificate = Mapping[str, Any]
"""Certificate as returned by ``ssl`` (``getpeercert``)."""


class SubjectAltName(msgspec.Struct, frozen=True):
    """A subject alternative name."""

    kind: Literal["dns", "uri"]
    value: str


def matches_any_san(certificate: _Certificate, names: Sequence[SubjectAltName]) -> bool:
    """Return whether one of ``names`` is a subject alternative name; the common name is ignored."""
    return any(_matches(name, kind, value) for kind, value in _names(certificate) for name in names)


def format_certificate_names(certificate: _Certificate) -> str:
    """Return a certificate's names for a message, escaped because the peer controls them."""
    names = [f"{kind}:{value}" for kind, value in _names(certificate)]
    text = ", ".join(names) or "no names"
    return ascii(text[:300])[1:-1]


def _names(certificate: _Certificate) -> Sequence[tuple[str, str]]:
    names: Sequence[tuple[str, str]] = certificate.get("subjectAltName", ())
    return names


def _matches(name: SubjectAltName, kind: str, value: str) -> bool:
    if name.kind == "uri":
        return kind == "URI" and value == name.value
    return kind == "DNS" and _dns_matches(value.lower(), name.value.lower())


def _dns_matches(presented: str, name: str) -> bool:
    """Return whether a certificate's name equals ``name`` or is a wildcard for its first label.

    A wildcard in ``name`` is not a pattern: it only matches the same wildcard.
    """
    if presented == name:
        return True
    star, _, parent = presented.partition(".")
    label, _, rest = name.partition(".")
    # As in OpenSSL, a wildcard does not match all names below a top-level domain.
    return star == "*" and "." in parent and rest == parent and label not in ("", "*")
