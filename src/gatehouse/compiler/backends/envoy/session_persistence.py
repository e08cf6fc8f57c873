"""Session persistence: a cookie or header set by Envoy contains the selected endpoint."""

from __future__ import annotations

import hashlib

import msgspec
from envoy.config.core.v3 import extension_pb2
from envoy.config.route.v3 import route_components_pb2 as components
from envoy.extensions.filters.http.stateful_session.v3 import stateful_session_pb2
from envoy.extensions.http.stateful_session.cookie.v3 import cookie_pb2
from envoy.extensions.http.stateful_session.header.v3 import header_pb2
from envoy.type.http.v3 import cookie_pb2 as http_cookie_pb2

from gatehouse.compiler.backends.envoy import headers, quoting, route_match
from gatehouse.compiler.backends.envoy.protobufs import packed
from gatehouse.compiler.backends.envoy.route_context import EnvoyPiece, EnvoyRouteContext
from gatehouse.compiler.backends.failures import InvalidValueError
from gatehouse.compiler.ir import http as ir

STATEFUL_SESSION_FILTER = "envoy.filters.http.stateful_session"


def session_filter(_context: EnvoyRouteContext, route: ir.Route) -> EnvoyPiece | None:
    """Return the filter's configuration for a route. Raises InvalidValueError."""
    action = route.action
    if not isinstance(action, ir.Forward) or action.persistence is None:
        return None
    fields = components.Route()
    keep_endpoint(fields, action.persistence)
    return EnvoyPiece(fields=fields, actions=backends_by_session(action))


def keep_endpoint(
    proto: components.Route | components.WeightedCluster.ClusterWeight, session: ir.Persistence
) -> None:
    """Select the endpoint of a route or of a share by a session. Raises InvalidValueError."""
    own = stateful_session_pb2.StatefulSession(session_state=_state(session))
    proto.typed_per_filter_config[STATEFUL_SESSION_FILTER].CopyFrom(
        packed(stateful_session_pb2.StatefulSessionPerRoute(stateful_session=own))
    )


def _state(persistence: ir.Persistence) -> extension_pb2.TypedExtensionConfig:
    # Envoy finds these extensions by exactly these names.
    if persistence.kind == "header":
        header = header_pb2.HeaderBasedSessionState(name=quoting.changed_header(persistence.name))
        return extension_pb2.TypedExtensionConfig(
            name="envoy.http.stateful_session.header", typed_config=packed(header)
        )
    # Envoy adds HttpOnly itself.
    cookie = http_cookie_pb2.Cookie(name=_name(persistence), path=persistence.path)
    if persistence.lifetime:
        cookie.ttl.CopyFrom(quoting.duration_of(persistence.lifetime))
    return extension_pb2.TypedExtensionConfig(
        name="envoy.http.stateful_session.cookie",
        typed_config=packed(cookie_pb2.CookieBasedSessionState(cookie=cookie)),
    )


def check_envoy_session(action: ir.Forward, session: ir.Persistence) -> None:
    """Raise InvalidValueError if Envoy does not support the session of an action."""
    _state(session)
    backends_by_session(action)


def backends_by_session(action: ir.Forward) -> list[tuple[components.HeaderMatcher, ir.Forward]]:
    """Return the actions of requests whose cookie names one of several backends, with the condition
    of each. Other requests get a backend by weight, and a cookie that names it (:func:`mark`).

    Raises InvalidValueError for sessions in headers.
    """
    session = action.persistence
    if session is None or not _is_shared(action):
        return []
    if session.kind == "header":
        raise InvalidValueError(
            "session persistence by header with several backends is not supported by Envoy"
        )
    clusters = sorted({backend.cluster for backend in action.backends})
    return [
        (
            route_match.header_match("cookie", _cookie_pattern(session, cluster)),
            msgspec.structs.replace(
                action,
                failing=0,
                backends=tuple(
                    backend for backend in action.backends if backend.cluster == cluster
                ),
            ),
        )
        for cluster in clusters
    ]


def _is_shared(action: ir.Forward) -> bool:
    several = len(action.backends) > 1 or bool(action.failing)
    return several and action.persistence is not None


def _cookie_pattern(session: ir.Persistence, cluster: str) -> str:
    name, value = quoting.escape_pattern(_name(session)), _mark(cluster)
    return f"(?:.*;\\s*)?{name}-backend={value}\\s*(?:;.*)?"


def mark(share: headers.HeaderTarget, action: ir.Forward, cluster: str) -> None:
    """Set the cookie that names the backend of a share, if there is session persistence."""
    session = action.persistence
    if session is None or not _is_shared(action):
        return
    lifetime = f"; Max-Age={session.lifetime}" if session.lifetime else ""
    text = f"{_name(session)}-backend={_mark(cluster)}; Path={session.path}; HttpOnly{lifetime}"
    option = headers.option("set-cookie", quoting.escape_percent(text), append=True)
    share.response_headers_to_add.append(option)


def _mark(cluster: str) -> str:
    return hashlib.sha256(cluster.encode()).hexdigest()[:12]


def _name(session: ir.Persistence) -> str:
    quoting.check_header_name(session.name)
    return session.name
