"""Settings and snippets of a route that exist for NGINX only."""

from __future__ import annotations

from gatehouse.compiler.backends.envoy.route_context import EnvoyRouteContext
from gatehouse.compiler.backends.failures import InvalidValueError
from gatehouse.compiler.ir import http as ir
from gatehouse.compiler.ir.proxy_settings import NginxClientSettings, NginxResponseSettings
from gatehouse.compiler.ir.unsupported import UnsupportedSetting

_NO_CLIENT_SETTINGS, _NO_RESPONSE_SETTINGS = NginxClientSettings(), NginxResponseSettings()
_CLIENT_FIELDS = (
    "body_buffer",
    "body_timeout",
    "requests",
    "lifetime",
    "idle",
    "keepalive_header_timeout",
    "keepalive_min_timeout",
)
_PROXY_FIELDS = ("buffering", "buffer_size", "buffers", "busy_buffers_size", "connect")


def reject_snippets(_context: EnvoyRouteContext, route: ir.Route) -> None:
    """Raise InvalidValueError for a route with snippets."""
    if route.snippets:
        objects = ", ".join(dict.fromkeys(str(snippet.origin) for snippet in route.snippets))
        raise InvalidValueError(f"{objects}: snippets in NGINX syntax are not supported by Envoy")


def unsupported_nginx_settings(
    _context: EnvoyRouteContext, route: ir.Route
) -> list[UnsupportedSetting]:
    """Return the timeouts and buffers of a route that Envoy does not support."""
    client, proxy = route.settings.client, route.settings.proxy
    if client.nginx == _NO_CLIENT_SETTINGS and proxy.nginx == _NO_RESPONSE_SETTINGS:
        return []
    return [
        UnsupportedSetting(settings.source(f"nginx.{field}"), "not supported by Envoy for a route")
        for settings, fields in ((client, _CLIENT_FIELDS), (proxy, _PROXY_FIELDS))
        for field in fields
        if getattr(settings.nginx, field) is not None
    ]
