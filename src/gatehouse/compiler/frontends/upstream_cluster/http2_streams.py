"""Annotation with the number of concurrent streams per HTTP/2 connection to servers."""

from __future__ import annotations

from gatehouse.apis import upstream_clusters as api
from gatehouse.compiler.ir.kube_apiserver import DEFAULT_HTTP2_STREAMS

_MAX_STREAMS = 2**31 - 1
"""Maximum value of SETTINGS_MAX_CONCURRENT_STREAMS that a data plane supports."""


def parse_streams(annotations: dict[str, str]) -> tuple[int, tuple[str, ...]]:
    """Return the number of requests that share a connection, and problems of the annotation."""
    text = annotations.get(api.STREAMS_ANNOTATION, "")
    if not text:
        return DEFAULT_HTTP2_STREAMS, ()
    if text.isascii() and text.isdecimal() and len(text) <= len(str(_MAX_STREAMS)):
        streams = int(text)
        if 1 <= streams <= _MAX_STREAMS:
            return streams, ()
    problem = (
        f"annotation {api.STREAMS_ANNOTATION}: {text!r} must be a number from 1 to {_MAX_STREAMS}"
    )
    return DEFAULT_HTTP2_STREAMS, (problem,)
