"""Translation of ``compression`` of parameters to IR. No I/O."""

from __future__ import annotations

import re

from gatehouse.apis import data_plane_parameters as api
from gatehouse.compiler.frontends.gateway_api.extensions import nginx_values
from gatehouse.compiler.frontends.gateway_api.extensions.policy_fields import FieldParser
from gatehouse.compiler.ir import settings as ir
from gatehouse.compiler.ir.proxy_settings import Buffers, NginxCompression

_TYPE = re.compile(r"[A-Za-z0-9.+*_-]+/[A-Za-z0-9.+*_-]+|\*")
_PROXIED = frozenset(
    {
        "off",
        "expired",
        "no-cache",
        "no-store",
        "private",
        "no_last_modified",
        "no_etag",
        "auth",
        "any",
    }
)


def parse_compression(
    parse: FieldParser, requested: api.CompressionSpec | None
) -> ir.Compression | None:
    """Return the compression of responses; None if there is none."""
    if requested is None:
        return None
    buffers = None
    if requested.buffers is not None:
        size = parse("compression.buffers.size", nginx_values.size, requested.buffers.size)
        buffers = Buffers(requested.buffers.number, size or 4096)
    for index, value in enumerate(requested.mime_types):
        if not _TYPE.fullmatch(value):
            parse.problems.append(
                f"spec.compression.mimeTypes[{index}]: {value!r} must be a MIME type"
            )
    for index, value in enumerate(requested.gzip.disable):
        if not _is_pattern(value):
            where = f"compression.gzip.disable[{index}]"
            parse.problems.append(f"spec.{where}: invalid regular expression {value!r}")
    for index, value in enumerate(requested.gzip.proxied):
        if value not in _PROXIED:
            parse.problems.append(
                f"spec.compression.gzip.proxied[{index}]: {value!r} is not supported"
            )
    return ir.Compression(
        level=requested.level,
        min_length=requested.min_length,
        types=requested.mime_types,
        nginx=NginxCompression(
            buffers=buffers,
            vary=requested.gzip.vary,
            http_version=requested.gzip.http_version or "",
            disabled=requested.gzip.disable,
            proxied=requested.gzip.proxied,
        ),
    )


def _is_pattern(text: str) -> bool:
    try:
        re.compile(text)
    except re.error:
        return False
    return bool(text) and text.isprintable()
