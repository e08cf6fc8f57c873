"""The annotation with what the servers take on one HTTP/2 connection."""

from __future__ import annotations

from gatehouse.apis import upstream_clusters as api
from gatehouse.compiler.ir.kube_apiserver import DEFAULT_HTTP2_STREAMS

_MOST = 2**31 - 1
"""Of SETTINGS_MAX_CONCURRENT_STREAMS that a data plane can be told."""


def read(annotations: dict[str, str]) -> tuple[int, tuple[str, ...]]:
    """Give how many requests share a connection, and what is wrong with the annotation."""
    said = annotations.get(api.STREAMS, "")
    if not said:
        return DEFAULT_HTTP2_STREAMS, ()
    if said.isascii() and said.isdecimal() and len(said) <= len(str(_MOST)):
        found = int(said)
        if 1 <= found <= _MOST:
            return found, ()
    problem = f"annotation {api.STREAMS}: {said!r} is no number from 1 to {_MOST}"
    return DEFAULT_HTTP2_STREAMS, (problem,)
