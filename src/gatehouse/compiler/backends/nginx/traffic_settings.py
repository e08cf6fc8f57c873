"""Traffic settings of policies as directives, for clients and backends."""

from __future__ import annotations

from gatehouse.compiler.backends.nginx.capabilities import NginxCapabilities
from gatehouse.compiler.backends.nginx.directives import (
    Directive,
    block,
    optional_directives,
    simple_directive,
    switch,
)
from gatehouse.compiler.backends.nginx.route_context import NginxRouteContext, RoutePiece
from gatehouse.compiler.ir import settings as ir
from gatehouse.compiler.ir.http import Route
from gatehouse.compiler.ir.proxy_settings import (
    Buffers,
    NginxClientSettings,
    NginxResponseSettings,
)
from gatehouse.compiler.ir.unsupported import UnsupportedSetting

HEAD = 64 << 10
"""Default size in bytes of the buffer for response headers, the limit of Envoy. A response that is
shorter takes memory only for what it has."""

BUFFERS = Buffers(10, 16 << 10)
"""Default buffers of a response. NGINX requires that two header buffers fit into all but one."""

NEXT_ENDPOINT_SECONDS = 60.0
"""Seconds after which NGINX sends a request to no further endpoint, unless the rule sets fewer."""

_DEFAULTS = NginxClientSettings()

_DIGITS = "0123456789"


def unsupported_client(context: NginxRouteContext, route: Route) -> list[UnsupportedSetting]:
    """Return the client settings for which this NGINX is too old."""
    client, able = route.settings.client, context.capabilities
    if client.nginx.keepalive_min_timeout is not None and not able.keepalive_min_timeout:
        setting = client.source("nginx.keepalive_min_timeout")
        return [UnsupportedSetting(setting, "requires NGINX 1.27.4 or newer")]
    return []


def clients(settings: NginxClientSettings, capabilities: NginxCapabilities) -> list[Directive]:
    """Return the client directives of a server or location, except the body size."""
    if settings == _DEFAULTS:
        return []
    times = {"client_body_timeout": settings.body_timeout, "keepalive_time": settings.lifetime}
    if capabilities.keepalive_min_timeout:
        times["keepalive_min_timeout"] = settings.keepalive_min_timeout
    directives = [
        *optional_directives({"client_body_buffer_size": settings.body_buffer}),
        *optional_directives(times, format_time),
        *optional_directives({"keepalive_requests": settings.requests}),
    ]
    if settings.idle is not None:
        timeout = settings.keepalive_header_timeout
        header = [] if timeout is None else [whole_seconds(timeout)]
        directives.append(
            simple_directive("keepalive_timeout", format_time(settings.idle), *header)
        )
    return directives


def client_piece(context: NginxRouteContext, route: Route) -> RoutePiece | None:
    """Return the client settings that differ from those of the server."""
    own = route.settings.client.nginx
    if own in (context.client.nginx, _DEFAULTS):
        return None
    inherited = clients(context.client.nginx, context.capabilities)
    directives = clients(own, context.capabilities)
    return RoutePiece(settings=tuple(item for item in directives if item not in inherited))


def body_limit_piece(_context: NginxRouteContext, route: Route) -> RoutePiece | None:
    """Return the directives that reject bodies longer than permitted.

    NGINX checks the Content-Length before the route is known, and not again. So the route checks
    it, and leaves bodies of unknown length to NGINX.
    """
    size = route.settings.client.body_size
    if not size:
        return None
    is_longer = ("($content_length", "~", f'"{longer(size)}")')
    refuse = block("if", is_longer, (simple_directive("return", "413"),))
    return RoutePiece(rejections=(simple_directive("client_max_body_size", str(size)), refuse))


def longer(size: int) -> str:
    """Return the pattern of the decimal numbers greater than ``size``."""
    digits = str(size)
    patterns = [rf"[1-9][0-9]{{{len(digits)},}}"]
    for position, digit in enumerate(digits):
        if digit != "9":
            rest = len(digits) - position - 1
            higher = f"[{_DIGITS[int(digit) + 1]}-9]"
            patterns.append(f"{digits[:position]}{higher}" + (f"[0-9]{{{rest}}}" if rest else ""))
    return f"^0*(?:{'|'.join(patterns)})$"


def proxying(module: str, settings: NginxResponseSettings) -> list[Directive]:
    """Return the directives of a location for backend responses, except timeouts."""
    if module == "grpc":
        return optional_directives({"grpc_buffer_size": settings.buffer_size})
    directives = optional_directives({"proxy_buffering": settings.buffering}, switch)
    if (settings.buffer_size, settings.buffers, settings.busy_buffers_size) != (None, None, None):
        head, buffers, busy = sizes(settings)
        directives += [
            simple_directive("proxy_buffer_size", str(head)),
            simple_directive("proxy_buffers", str(buffers.number), str(buffers.size)),
            simple_directive("proxy_busy_buffers_size", str(busy)),
        ]
    return directives


def sizes(settings: NginxResponseSettings) -> tuple[int, Buffers, int]:
    """Return consistent sizes; the number of buffers grows where they do not fit.

    NGINX requires: header buffer and one buffer <= busy < all buffers but one.
    """
    head, buffers = settings.buffer_size or HEAD, settings.buffers or BUFFERS
    least = max(head, buffers.size)
    busy = max(settings.busy_buffers_size or 2 * least, least)
    if settings.busy_buffers_size is None and busy >= (buffers.number - 1) * buffers.size:
        busy = least
    number = max(buffers.number, busy // buffers.size + 2)
    return head, Buffers(number, buffers.size), busy


def waits(module: str, settings: ir.ProxySettings) -> list[Directive]:
    """Return the directives for timeouts of a backend."""
    timeouts = {
        f"{module}_connect_timeout": settings.nginx.connect,
        f"{module}_send_timeout": settings.send,
        f"{module}_read_timeout": settings.read,
    }
    return optional_directives(timeouts, format_time)


def format_time(value: float) -> str:
    """Format seconds as NGINX reads them."""
    return f"{round(value * 1000)}ms"


def whole_seconds(value: float) -> str:
    """Format whole seconds, where NGINX supports nothing smaller."""
    return f"{round(value)}s"
