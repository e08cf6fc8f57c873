"""Response compression with gzip, from settings in NGINX's terms."""

from __future__ import annotations

from typing import cast

from envoy.config.route.v3.route_components_pb2 import Route as RouteFields
from envoy.extensions.compression.gzip.compressor.v3 import gzip_pb2
from envoy.extensions.filters.http.compressor.v3 import compressor_pb2

from gatehouse.compiler.backends.envoy import extensions, quoting
from gatehouse.compiler.backends.envoy.protobufs import packed, wrap_number
from gatehouse.compiler.backends.envoy.route_context import EnvoyPiece, EnvoyRouteContext
from gatehouse.compiler.ir.http import Route
from gatehouse.compiler.ir.proxy_settings import NginxCompression
from gatehouse.compiler.ir.settings import HTML, Compression, DataPlaneSettings
from gatehouse.compiler.ir.unsupported import UnsupportedSetting

_MIN_LENGTH_BYTES = 20
"""Bytes; NGINX's default minimum length."""


COMPRESSOR = "envoy.filters.http.compressor"
"""Filter of a data plane whose parameters have compression, and of routes."""


def route_compression(_context: EnvoyRouteContext, route: Route) -> EnvoyPiece | None:
    """Return the filter of a route in place of that of its data plane."""
    settings = route.settings.compression
    if settings.enabled is None:
        return None
    fields, disabled = RouteFields(), compressor_pb2.CompressorPerRoute(disabled=True)
    fields.typed_per_filter_config[COMPRESSOR].CopyFrom(packed(disabled))
    if not settings.enabled:
        return EnvoyPiece(fields=fields)
    own = extensions.extension(COMPRESSOR, compression_filter(settings))
    return EnvoyPiece(fields=fields, filters=[own])


def compression_filter(settings: Compression) -> compressor_pb2.Compressor:
    """Return the configuration of the filter."""
    level = settings.level if settings.level is not None else 1
    # The values of this enum are the levels.
    bounded = cast("gzip_pb2.Gzip.CompressionLevel", min(9, max(1, level)))
    gzip = gzip_pb2.Gzip(compression_level=bounded)
    proto = compressor_pb2.Compressor(compressor_library=extensions.extension("gzip", gzip))
    common = proto.response_direction_config.common_config
    min_length = _MIN_LENGTH_BYTES if settings.min_length is None else settings.min_length
    common.min_content_length.CopyFrom(wrap_number(max(30, min_length)))
    if "*" not in settings.types:
        types = dict.fromkeys(settings.types or (HTML,))
        common.content_type.extend(map(quoting.check_text, types))
    return proto


def unsupported_compression(edge: DataPlaneSettings) -> list[UnsupportedSetting]:
    """Return the compression settings that Envoy does not support."""
    settings = edge.compression
    if settings is None:
        return []
    return [
        UnsupportedSetting(settings.source(f"nginx.{field}"), "not supported by Envoy")
        for field in NginxCompression.__struct_fields__
        if getattr(settings.nginx, field)
    ]
