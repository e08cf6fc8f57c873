"""What an Envoy refuses, read from its words."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

import msgspec

from gatehouse.dataplane.xds.resources import SECRET, Resource

MESSAGE_MAX = 2048
"""Characters kept of a reason: Envoy may quote a whole resource."""

_QUOTED = re.compile(r"[\n{]|-----BEGIN")
"""Where Envoy begins to quote a resource, if it does."""

_OPENINGS = ("Error adding/updating cluster(s) ", "Error adding/updating listener(s) ")


class Nack(msgspec.Struct, frozen=True):
    """A client refused a response."""

    message: str
    reasons: Mapping[str, str] = {}
    """Why, by the name of each refused resource, where the client says so; then everything else of
    the response is applied."""


class RejectedResource(msgspec.Struct, frozen=True):
    """A resource that a client does not take."""

    resource: Resource
    reason: str


def reasons_in(message: str, names: Collection[str]) -> dict[str, str]:
    """Give the reasons in Envoy's ``message`` for those of ``names`` that it accuses.

    Only what stands where Envoy puts names is taken for one: a reason may quote anything. Empty if
    the message tells none apart.
    """
    opening = next((each for each in _OPENINGS if message.startswith(each)), None)
    if opening is None:
        return {}
    text = message[len(opening) :]
    found: list[tuple[int, str]] = []
    for name in names:
        start = _entry(text, f"{name}: ")
        if start >= 0:
            found.append((start, name))
    found.sort()
    reasons: dict[str, str] = {}
    end = len(text)
    for start, name in reversed(found):
        reasons[name] = truncate(text[start + len(name) + 2 : end].strip(", \n"))
        end = start
    return reasons


def refused(resource: Resource, reason: str) -> RejectedResource:
    """Note a refusal. Of a secret, only so much of the reason as cannot quote it."""
    if resource.secret or resource.type_url == SECRET:
        reason = _QUOTED.split(reason, maxsplit=1)[0].strip()
    return RejectedResource(resource, truncate(reason))


def truncate(reason: str) -> str:
    """Give ``reason``, shortened to what is kept."""
    if len(reason) <= MESSAGE_MAX:
        return reason
    return reason[: MESSAGE_MAX - 1] + "…"


def _entry(text: str, beginning: str) -> int:
    """Where an entry of Envoy's list begins so; -1: nowhere."""
    if text.startswith(beginning):
        return 0
    for separator in (", ", "\n"):
        position = text.find(separator + beginning)
        if position >= 0:
            return position + len(separator)
    return -1
