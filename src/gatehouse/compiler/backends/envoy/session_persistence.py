"""Session persistence: a cookie or header set by Envoy contains the selected endpoint."""

from __future__ import annotations

from envoy.config.core.v3 import extension_pb2
from envoy.config.route.v3 import route_components_pb2 as components
from envoy.extensions.filters.http.stateful_session.v3 import stateful_session_pb2
from envoy.extensions.http.stateful_session.cookie.v3 import cookie_pb2
from envoy.extensions.http.stateful_session.header.v3 import header_pb2
from envoy.type.http.v3 import cookie_pb2 as http_cookie_pb2
from google.protobuf import any_pb2

from gatehouse.compiler.backends.envoy import quoting
from gatehouse.compiler.backends.envoy.protobufs import packed
from gatehouse.compiler.backends.failures import InvalidValueError
from gatehouse.compiler.ir import http as ir

FILTER = "envoy.filters.http.stateful_session"


def guard(persistence: ir.Persistence) -> any_pb2.Any:
    """Return the filter's configuration for a route. Raises InvalidValueError."""
    session = stateful_session_pb2.StatefulSession(session_state=_state(persistence))
    return packed(stateful_session_pb2.StatefulSessionPerRoute(stateful_session=session))


def _state(persistence: ir.Persistence) -> extension_pb2.TypedExtensionConfig:
    # Envoy finds these extensions by exactly these names.
    if persistence.kind == "header":
        header = header_pb2.HeaderBasedSessionState(name=quoting.changed_header(persistence.name))
        return extension_pb2.TypedExtensionConfig(
            name="envoy.http.stateful_session.header", typed_config=packed(header)
        )
    cookie = http_cookie_pb2.Cookie(
        name=quoting.header_name(persistence.name) and persistence.name, path="/"
    )
    cookie.attributes.add(name="HttpOnly")
    if persistence.lifetime:
        cookie.ttl.CopyFrom(quoting.seconds(persistence.lifetime))
    return extension_pb2.TypedExtensionConfig(
        name="envoy.http.stateful_session.cookie",
        typed_config=packed(cookie_pb2.CookieBasedSessionState(cookie=cookie)),
    )


def share(persistence: ir.Persistence) -> components.RouteAction.HashPolicy:
    """Return the hash policy that keeps a session with one of several backends.

    Raises InvalidValueError for sessions in headers.
    """
    if persistence.kind == "header":
        raise InvalidValueError(
            "session persistence by header with several backends is not supported by Envoy"
        )
    policy = components.RouteAction.HashPolicy()
    policy.cookie.name, policy.cookie.path = f"{persistence.name}-backend", "/"
    policy.cookie.ttl.CopyFrom(quoting.seconds(persistence.lifetime))
    return policy
