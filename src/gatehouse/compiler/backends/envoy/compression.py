"""Answers that are compressed with gzip, as NGINX's words ask for it."""

from __future__ import annotations

from typing import Any

from envoy.config.core.v3 import extension_pb2
from envoy.extensions.compression.gzip.compressor.v3 import gzip_pb2
from envoy.extensions.filters.http.compressor.v3 import compressor_pb2

from gatehouse.compiler.backends.envoy import quoting
from gatehouse.compiler.backends.envoy.protobufs import number, packed
from gatehouse.compiler.ir.settings import DataPlaneSettings

_SHORTEST = 20
"""Bytes; NGINX's own least length."""


def filter_of(edge: DataPlaneSettings) -> Any:
    """Give the filter's configuration."""
    wanted = edge.compression
    assert wanted is not None
    level = wanted.level if wanted.level is not None else 1
    gzip = gzip_pb2.Gzip(compression_level=min(9, max(1, level)))
    types = [each for each in wanted.types if each != "*"] or ["text/html"]
    made = compressor_pb2.Compressor(
        compressor_library=extension_pb2.TypedExtensionConfig(
            name="gzip", typed_config=packed(gzip)
        )
    )
    common = made.response_direction_config.common_config
    least = _SHORTEST if wanted.min_length is None else wanted.min_length
    common.min_content_length.CopyFrom(number(max(30, least)))
    if "*" not in wanted.types:
        common.content_type.extend(quoting.text(each) for each in dict.fromkeys([*types]))
    return made


def unsupported(edge: DataPlaneSettings) -> list[str]:
    """Say what of the compression Envoy leaves out."""
    wanted = edge.compression
    if wanted is None:
        return []
    parts = {
        "buffers": wanted.buffers, "vary": wanted.vary, "httpVersion": wanted.http_version,
        "disable": wanted.disabled, "proxied": wanted.proxied,
    }  # fmt: skip
    return [
        f"NginxProxy: spec.compression.{name}: Envoy knows no such setting"
        for name, set_ in parts.items()
        if set_
    ]
