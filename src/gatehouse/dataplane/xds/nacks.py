"""NACKs: rejected resources, identified from Envoy's error messages."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

import msgspec

from gatehouse.dataplane.agent_limits import MAX_NACK_REASON_CHARACTERS
from gatehouse.dataplane.xds.resources import SECRET_TYPE_URL, XdsResource

_QUOTED = re.compile(r"[\n{]|-----BEGIN")
"""Start of a resource that Envoy quotes in a reason."""

_END_OF_QUOTE = "\n}\n: "
"""End of a resource that Envoy quotes before the reason. In it, values have no line breaks."""

_START_OF_QUOTE = "goo.gle/debug"
"""Start of a message with such a quote. Envoy ends messages after 4,096 bytes."""

_OPENINGS = ("Error adding/updating cluster(s) ", "Error adding/updating listener(s) ")


class Nack(msgspec.Struct, frozen=True):
    """Rejection of a response."""

    message: str
    reasons: Mapping[str, str] = {}
    """Reasons by the name of each rejected resource, if the client reports them. Then all other
    resources of the response are applied."""


class RejectedResource(msgspec.Struct, frozen=True):
    """A resource that a client rejected."""

    resource: XdsResource
    reason: str


def reasons_in(message: str, names: Collection[str]) -> dict[str, str]:
    """Return the reasons in Envoy's ``message`` for the rejected resources of ``names``.

    A name is recognised only where Envoy puts names, because a reason may quote anything. The
    result is empty if the message does not identify resources.
    """
    opening = next(
        (opening_text for opening_text in _OPENINGS if message.startswith(opening_text)), None
    )
    if opening is None:
        return {}
    text = message[len(opening) :]
    entries: list[tuple[int, str]] = []
    for name in names:
        start = _entry(text, f"{name}: ")
        if start >= 0:
            entries.append((start, name))
    entries.sort()
    reasons: dict[str, str] = {}
    end = len(text)
    for start, name in reversed(entries):
        reasons[name] = truncate(text[start + len(name) + 2 : end].strip(", \n"))
        end = start
    return reasons


def rejected_resource(resource: XdsResource, reason: str) -> RejectedResource:
    """Build a rejected resource. Of a secret, only the part of the reason that cannot quote it is
    used. A resource that is quoted before it is no part of the reason."""
    reason = reason.rpartition(_END_OF_QUOTE)[2]
    if reason.startswith(_START_OF_QUOTE):
        reason = "the resource is invalid; Envoy's message ends before the reason"
    if resource.secret or resource.type_url == SECRET_TYPE_URL:
        reason = _QUOTED.split(reason, maxsplit=1)[0].strip()
    return RejectedResource(resource, truncate(reason.strip()))


def is_bind_error(reason: str) -> bool:
    """Return whether Envoy could not listen on an address, which others may release later."""
    return "cannot bind" in reason


def truncate(reason: str) -> str:
    """Return ``reason``, truncated to :data:`MAX_NACK_REASON_CHARACTERS` characters."""
    if len(reason) <= MAX_NACK_REASON_CHARACTERS:
        return reason
    return reason[: MAX_NACK_REASON_CHARACTERS - 1] + "…"


def _entry(text: str, beginning: str) -> int:
    """Return the position of an entry of Envoy's list with this beginning, or -1."""
    if text.startswith(beginning):
        return 0
    for separator in (", ", "\n"):
        position = text.find(separator + beginning)
        if position >= 0:
            return position + len(separator)
    return -1
