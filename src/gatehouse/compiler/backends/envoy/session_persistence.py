"""Session persistence: a cookie or header set by Envoy contains the selected endpoint."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import msgspec
from envoy.config.core.v3 import extension_pb2
from envoy.config.route.v3 import route_components_pb2 as components
from envoy.extensions.filters.http.stateful_session.v3 import stateful_session_pb2
from envoy.extensions.http.stateful_session.cookie.v3 import cookie_pb2
from envoy.extensions.http.stateful_session.header.v3 import header_pb2
from envoy.type.http.v3 import cookie_pb2 as http_cookie_pb2

from gatehouse.compiler.backends.envoy import extensions, quoting
from gatehouse.compiler.backends.envoy.protobufs import packed
from gatehouse.compiler.ir import http as ir

STATEFUL_SESSION_FILTER = "envoy.filters.http.stateful_session"


def keep_endpoint(
    proto: components.Route | components.WeightedCluster.ClusterWeight,
    backend: ir.Backend,
    backends: Sequence[ir.Backend],
) -> None:
    """Select the endpoint of a route, or of the share of one of its backends, by the session of
    the backend. Raises InvalidValueError.

    A cookie contains one endpoint. So if several backends of a route have sessions of one name, the
    first has the cookie of this name, and each other one a cookie of its own.
    """
    session = backend.persistence
    if session is None:
        return
    names = ((one.cluster, one.persistence.name) for one in backends if one.persistence)
    first = next(cluster for cluster, name in names if name == session.name)
    if session.kind == "cookie" and backend.cluster != first:
        digest = hashlib.sha256(backend.cluster.encode()).hexdigest()[:12]
        session = msgspec.structs.replace(session, name=f"{session.name}-{digest}")
    own = stateful_session_pb2.StatefulSession(session_state=_state(session))
    proto.typed_per_filter_config[STATEFUL_SESSION_FILTER].CopyFrom(
        packed(stateful_session_pb2.StatefulSessionPerRoute(stateful_session=own))
    )


def _state(persistence: ir.Persistence) -> extension_pb2.TypedExtensionConfig:
    # Envoy finds these extensions by exactly these names.
    if persistence.kind == "header":
        header = header_pb2.HeaderBasedSessionState(name=quoting.changed_header(persistence.name))
        return extensions.extension("envoy.http.stateful_session.header", header)
    # Envoy adds HttpOnly itself.
    quoting.check_header_name(persistence.name)
    cookie = http_cookie_pb2.Cookie(name=persistence.name, path=persistence.path)
    if persistence.lifetime:
        cookie.ttl.CopyFrom(quoting.duration_of(persistence.lifetime))
    return extensions.extension(
        "envoy.http.stateful_session.cookie", cookie_pb2.CookieBasedSessionState(cookie=cookie)
    )
