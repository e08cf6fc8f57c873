"""Digests in listeners, by which Envoy shows what it has of them. No I/O.

If only filter chains of a listener change, Envoy replaces these chains and keeps the version that
it shows. So each chain has a digest of its content, and the listener one of the rest, in metadata.
A digest changes only with its own part: Envoy drains the connections of a chain that differs, and
those of all chains if the rest differs.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from typing import TypeAlias

import msgspec
from envoy.config.core.v3 import base_pb2
from envoy.config.listener.v3 import listener_components_pb2, listener_pb2
from google.protobuf.message import DecodeError

from gatehouse.dataplane.xds import protobuf_wire
from gatehouse.dataplane.xds.resources import LISTENER_TYPE_URL, XdsResource

_Listener: TypeAlias = listener_pb2.Listener
_Chain: TypeAlias = listener_components_pb2.FilterChain

_NAMESPACE, _KEY = "gatehouse", "gatehouse_digest"
"""Place of a digest in metadata."""

_DIGITS = 32

DIGEST_PATTERN = re.compile(rb'"%b": ?"([0-9a-f]{%d})"' % (_KEY.encode(), _DIGITS))
"""Pattern of a digest in a configuration dump."""


def with_digests(resource: XdsResource) -> XdsResource:
    """Return a listener with digests. Another resource, or one that is not valid, is unchanged."""
    if resource.type_url != LISTENER_TYPE_URL:
        return resource
    try:
        proto = _Listener.FromString(resource.body)
    except DecodeError:
        return resource
    chains = [protobuf_wire.field(number, _with_digest(chain)) for number, chain in _chains(proto)]
    proto.ClearField("filter_chains")
    proto.ClearField("default_filter_chain")
    return msgspec.structs.replace(resource, body=b"".join([_with_digest(proto), *chains]))


def digests(body: bytes) -> list[str]:
    """Return the digests in a serialised listener, sorted. Raises DecodeError."""
    proto = _Listener.FromString(body)
    places = [proto.metadata, *(chain.metadata for _, chain in _chains(proto))]
    return sorted(digest for metadata in places if (digest := _read(metadata)))


def _chains(proto: _Listener) -> Iterator[tuple[int, _Chain]]:
    """Yield the chains of a listener with the numbers of their fields."""
    for chain in proto.filter_chains:
        yield _Listener.FILTER_CHAINS_FIELD_NUMBER, chain
    if proto.HasField("default_filter_chain"):
        yield _Listener.DEFAULT_FILTER_CHAIN_FIELD_NUMBER, proto.default_filter_chain


def _with_digest(part: _Listener | _Chain) -> bytes:
    """Serialise a part with the digest of its content."""
    content = part.SerializeToString(deterministic=True)
    digest = type(part)()
    digest.metadata.filter_metadata[_NAMESPACE].fields[_KEY].string_value = hashlib.sha256(
        content
    ).hexdigest()[:_DIGITS]
    # A message after the end of a serialised message is merged into it.
    return content + digest.SerializeToString()


def _read(metadata: base_pb2.Metadata) -> str:
    present = metadata.filter_metadata.get(_NAMESPACE)
    value = present.fields.get(_KEY) if present is not None else None
    return value.string_value if value is not None else ""
