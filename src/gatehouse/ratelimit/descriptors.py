"""Which buckets a request of Envoy's protocol draws from. Pure.

``envoy/service/ratelimit/v3/rls.proto``; the entries of a descriptor are named in
:attr:`gatehouse.compiler.ir.kube_apiserver.ApiListener.counter`.
"""

from __future__ import annotations

from urllib.parse import quote

import msgspec
from envoy.extensions.common.ratelimit.v3 import ratelimit_pb2
from envoy.service.ratelimit.v3 import rls_pb2

ENTRIES = ("cluster", "schema", "rate", "burst")

MAX_TOKENS = 10**9
"""Of a rate or a burst: Redis counts in doubles, by which a microsecond of that is still exact."""

MOST_DESCRIPTORS = 64


class MalformedError(Exception):
    """A request that no bucket follows from; the message says why."""


class TakeRequest(msgspec.Struct, frozen=True):
    """So many tokens of one bucket."""

    bucket: str
    """The same for all that are to share it, and for nothing else."""
    rate: int
    burst: int
    wanted: int = 1


def draws(request: rls_pb2.RateLimitRequest) -> list[TakeRequest]:
    """Give what a request draws, one of each descriptor. Raises MalformedError."""
    if not request.descriptors or len(request.descriptors) > MOST_DESCRIPTORS:
        raise MalformedError(f"{len(request.descriptors)} descriptors; 1 to {MOST_DESCRIPTORS}")
    return [_draw(request, each) for each in request.descriptors]


def _draw(
    request: rls_pb2.RateLimitRequest, descriptor: ratelimit_pb2.RateLimitDescriptor
) -> TakeRequest:
    found = {entry.key: entry.value for entry in descriptor.entries}
    if len(found) != len(descriptor.entries) or found.keys() != set(ENTRIES):
        names = ", ".join(entry.key for entry in descriptor.entries) or "none"
        raise MalformedError(f"a descriptor has the entries {', '.join(ENTRIES)}; not {names}")
    if not found["cluster"] or not found["schema"]:
        raise MalformedError("a descriptor's cluster or schema is empty")
    # Its own number goes first, then the request's (rls.proto); none is one.
    wanted = request.hits_addend or 1
    if descriptor.HasField("hits_addend"):
        wanted = descriptor.hits_addend.value
    # A changed limit goes on with the tokens that are there: it is no occasion for another burst.
    parts = (request.domain, found["cluster"], found["schema"])
    bucket = ":".join(quote(part, safe="") for part in parts)
    rate, burst = _number(found, "rate"), _number(found, "burst")
    return TakeRequest(bucket, rate, burst, min(wanted, MAX_TOKENS + 1))


def _number(found: dict[str, str], name: str) -> int:
    text = found[name]
    if text.isascii() and text.isdecimal() and len(text) <= 10 and 1 <= int(text) <= MAX_TOKENS:
        return int(text)
    raise MalformedError(f"a descriptor's {name} is {text!r}; 1 to {MAX_TOKENS}")
