"""Response compression with gzip, from settings in NGINX's terms."""

from __future__ import annotations

from typing import cast

from envoy.config.core.v3 import extension_pb2
from envoy.extensions.compression.gzip.compressor.v3 import gzip_pb2
from envoy.extensions.filters.http.compressor.v3 import compressor_pb2

from gatehouse.compiler.backends.envoy import quoting
from gatehouse.compiler.backends.envoy.protobufs import number, packed
from gatehouse.compiler.ir.settings import DataPlaneSettings
from gatehouse.compiler.ir.unsupported import UnsupportedSetting

_MIN_LENGTH = 20
"""Bytes; NGINX's default minimum length."""


def filter_of(edge: DataPlaneSettings) -> compressor_pb2.Compressor:
    """Return the configuration of the filter."""
    settings = edge.compression
    assert settings is not None
    level = settings.level if settings.level is not None else 1
    # The values of this enum are the levels.
    bounded = cast("gzip_pb2.Gzip.CompressionLevel", min(9, max(1, level)))
    gzip = gzip_pb2.Gzip(compression_level=bounded)
    types = [each for each in settings.types if each != "*"] or ["text/html"]
    proto = compressor_pb2.Compressor(
        compressor_library=extension_pb2.TypedExtensionConfig(
            name="gzip", typed_config=packed(gzip)
        )
    )
    common = proto.response_direction_config.common_config
    min_length = _MIN_LENGTH if settings.min_length is None else settings.min_length
    common.min_content_length.CopyFrom(number(max(30, min_length)))
    if "*" not in settings.types:
        common.content_type.extend(quoting.text(each) for each in dict.fromkeys([*types]))
    return proto


def unsupported(edge: DataPlaneSettings) -> list[UnsupportedSetting]:
    """Return the compression settings that Envoy does not support."""
    settings = edge.compression
    if settings is None:
        return []
    return [
        UnsupportedSetting(settings.source(field), "not supported by Envoy")
        for field in ("buffers", "vary", "http_version", "disabled", "proxied")
        if getattr(settings, field)
    ]
