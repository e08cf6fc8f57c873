"""Headers of clients that Envoy changes before it matches routes.

Their values are copied into internal headers first, so that routes and rate limits see what the
client sent. Headers that Envoy removes, and that no client has a reason to send, cannot be matched.
"""

from __future__ import annotations

from envoy.config.common.mutation_rules.v3 import mutation_rules_pb2

from gatehouse.compiler.backends.envoy import headers, names, quoting
from gatehouse.compiler.backends.failures import InvalidValueError

_Mutation = mutation_rules_pb2.HeaderMutation

_COPIES = {
    "x-forwarded-for": f"{names.HEADER_PREFIX}client-for",
    "x-forwarded-proto": f"{names.HEADER_PREFIX}client-proto",
    "x-forwarded-client-cert": f"{names.HEADER_PREFIX}client-cert",
}
"""Names of the copies in lower case, by the name that the client sent."""

COPIES = tuple(_COPIES.values())
"""Headers that backends must not get."""

_REMOVED = frozenset(
    {
        "connection",
        "expect",
        "http2-settings",
        "keep-alive",
        "proxy-connection",
        "transfer-encoding",
    }
)
"""Headers in lower case that belong to one connection: Envoy removes them before it matches."""

_REMOVED_PREFIXES = ("x-envoy-", names.HEADER_PREFIX)


def copy_mutations() -> list[mutation_rules_pb2.HeaderMutation]:
    """Return the early changes of a request that keep the values of the client.

    The copies that a client sent must be removed before: an empty value would not replace them.
    """
    return [
        _Mutation(append=headers.option(copy, f"%REQ({name})%")) for name, copy in _COPIES.items()
    ]


def seen_name(name: str) -> str:
    """Return the name under which routes see a header of the client."""
    return _COPIES.get(name, name)


def matched_name(name: str) -> str:
    """Return the name under which routes see a header of the client, for a match.

    Raises InvalidValueError for a header that Envoy has removed by then.
    """
    lowered = quoting.check_header_name(name)
    if "_" in lowered:
        raise InvalidValueError(f"header {name!r} cannot be matched: Envoy drops such names")
    if lowered in _REMOVED or lowered.startswith(_REMOVED_PREFIXES):
        raise InvalidValueError(f"header {name!r} cannot be matched: Envoy removes it before")
    return seen_name(lowered)
