"""Token buckets of a request of Envoy's rate limit protocol. No I/O.

``envoy/service/ratelimit/v3/rls.proto``; the entries of a descriptor are those that
:mod:`gatehouse.compiler.backends.envoy.shared_limits` writes.
"""

from __future__ import annotations

import hashlib
from urllib.parse import quote

import msgspec
from envoy.extensions.common.ratelimit.v3 import ratelimit_pb2
from envoy.service.ratelimit.v3 import rls_pb2

_ENTRIES = ("cluster", "schema", "rate", "burst")
_PERIODS = {"second": 1, "minute": 60}
_PERIOD, _KEYS = "per", ("key", "remote_address", "size")
_OPTIONAL = (_PERIOD, *_KEYS)
"""Period of the rate, a second by default, and properties of requests, each value of which has a
bucket of its own. Envoy itself names the entry of the client's address."""

MAX_TOKENS = 10**9
"""Maximum rate or burst. Redis calculates in doubles, which are still exact to a microsecond's
share of this number of tokens."""

MAX_DESCRIPTORS = 64


class MalformedDescriptorError(Exception):
    """An invalid request. The message contains the reason."""


class TakeRequest(msgspec.Struct, frozen=True):
    """A request to take tokens from one bucket."""

    bucket: str
    """Key of the bucket, equal for all clients that share it."""
    rate: int
    burst: int
    tokens: int = 1
    seconds: int = 1
    """Period of the rate."""


def take_requests(request: rls_pb2.RateLimitRequest) -> list[TakeRequest]:
    """Return one take request for each descriptor. Raises MalformedDescriptorError."""
    if not request.descriptors or len(request.descriptors) > MAX_DESCRIPTORS:
        raise MalformedDescriptorError(
            f"descriptors: number must be 1 to {MAX_DESCRIPTORS}, is {len(request.descriptors)}"
        )
    return [_take_request(request, descriptor) for descriptor in request.descriptors]


def _take_request(
    request: rls_pb2.RateLimitRequest, descriptor: ratelimit_pb2.RateLimitDescriptor
) -> TakeRequest:
    entries = {entry.key: entry.value for entry in descriptor.entries}
    required = entries.keys() - {*_OPTIONAL}
    if len(entries) != len(descriptor.entries) or required != set(_ENTRIES):
        names = ", ".join(entry.key for entry in descriptor.entries) or "none"
        raise MalformedDescriptorError(
            f"descriptor: entries must be {', '.join(_ENTRIES)}, are {names}"
        )
    period = entries.get(_PERIOD, "second")
    if period not in _PERIODS:
        raise MalformedDescriptorError(f"descriptor: per must be one of {', '.join(_PERIODS)}")
    if not entries["cluster"] or not entries["schema"]:
        raise MalformedDescriptorError("descriptor: cluster or schema is empty")
    # The descriptor's number of hits overrides that of the request (rls.proto). The default is one.
    tokens = request.hits_addend or 1
    if descriptor.HasField("hits_addend"):
        tokens = descriptor.hits_addend.value
    # The limit is not part of the key: a changed limit keeps the present tokens and allows no new
    # burst.
    parts = [request.domain, entries["cluster"], entries["schema"]]
    if values := [(name, entries[name]) for name in _KEYS if name in entries]:
        # Clients choose the values: neither their length nor their content gets into Redis.
        parts.append(hashlib.sha256(repr(values).encode()).hexdigest())
    bucket = ":".join(quote(part, safe="") for part in parts)
    rate, burst = _number(entries, "rate"), _number(entries, "burst")
    return TakeRequest(bucket, rate, burst, min(tokens, MAX_TOKENS + 1), _PERIODS[period])


def _number(entries: dict[str, str], name: str) -> int:
    text = entries[name]
    if text.isascii() and text.isdecimal() and len(text) <= 10 and 1 <= int(text) <= MAX_TOKENS:
        return int(text)
    raise MalformedDescriptorError(f"descriptor: {name} must be 1 to {MAX_TOKENS}, is {text!r}")
