"""Authorization servers (ExternalAuth): Envoy's ``ext_authz`` asks them, by HTTP or gRPC.

The server gets the normalised path of the client, by which Envoy chose the route.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from envoy.config.accesslog.v3 import accesslog_pb2
from envoy.config.common.mutation_rules.v3 import mutation_rules_pb2
from envoy.config.core.v3 import base_pb2, config_source_pb2, extension_pb2, http_uri_pb2
from envoy.extensions.filters.http.ext_authz.v3 import ext_authz_pb2
from envoy.extensions.filters.network.http_connection_manager.v3 import (
    http_connection_manager_pb2 as manager_pb2,
)
from envoy.type.matcher.v3 import regex_pb2, string_pb2

from gatehouse.compiler.backends.envoy import client_headers, extensions, headers, names, quoting
from gatehouse.compiler.backends.envoy.protobufs import exact_strings, http_status, truth
from gatehouse.compiler.backends.envoy.route_context import EnvoyPiece, EnvoyRouteContext
from gatehouse.compiler.backends.failures import InvalidValueError
from gatehouse.compiler.ir.authentication import (
    AUTHORIZATION_SERVER_FAILED,
    AUTHORIZATION_SERVER_TIMEOUT_SECONDS,
    ExternalAuth,
)
from gatehouse.compiler.ir.http import Route

_EXT_AUTHZ = "envoy.filters.http.ext_authz"
_METADATA = _EXT_AUTHZ
_Mutation = mutation_rules_pb2.HeaderMutation

_PLAIN = re.compile(r"[A-Za-z0-9-]+")

_OWN_HEADERS = {
    "x-real-ip": "%DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT%",
    "x-forwarded-host": "%REQ(:AUTHORITY)%",
    "x-forwarded-port": "%DOWNSTREAM_LOCAL_PORT%",
}
"""Headers that backends get from Envoy after this check: the server gets the same by HTTP."""

_FORGED = (*_OWN_HEADERS, "forwarded", names.SCOPE_HEADER, *client_headers.COPIES)
"""Headers of clients that backends never get."""

_NEVER_COPIED = (
    "(?:connection|content-.*|date|expect|host|http2-settings|keep-alive|proxy-.*|server|te|trailer"
    "|transfer-encoding|upgrade|vary|x-accel-.*|x-envoy-.*|x-gh-.*|:.*)"
)
"""Headers of a response that describe itself or its connection, or control a proxy."""

_DENIED_HEADERS = (
    "cache-control",
    "content-type",
    "location",
    "retry-after",
    "set-cookie",
    "www-authenticate",
)
"""Headers of a server that denies a request, which clients get."""

_DENIED_FLAG = "UAEX"
_LAST_SUCCESS = 299


def check(_context: EnvoyRouteContext, route: Route) -> EnvoyPiece | None:
    """Return the filter that permits only requests that a server permits. Raises
    InvalidValueError."""
    auth = route.external_auth
    return EnvoyPiece(filters=[check_filter(auth)]) if auth is not None else None


def check_filter(auth: ExternalAuth) -> extension_pb2.TypedExtensionConfig:
    """Return the filter of a check. Raises InvalidValueError."""
    proto = ext_authz_pb2.ExtAuthz(
        transport_api_version=config_source_pb2.V3,
        status_on_error=http_status(AUTHORIZATION_SERVER_FAILED),
        decoder_header_mutation_rules=mutation_rules_pb2.HeaderMutationRules(
            disallow_system=truth(True),
            disallow_expression=regex_pb2.RegexMatcher(regex=f"(?i){_NEVER_COPIED}"),
        ),
    )
    if auth.body_size:
        proto.with_request_body.max_request_bytes = auth.body_size
        # A text would have other characters in place of bytes that are not UTF-8.
        proto.with_request_body.pack_as_bytes = True
    requested = [quoting.check_header_name(name) for name in auth.request_headers]
    timeout = quoting.duration_of(AUTHORIZATION_SERVER_TIMEOUT_SECONDS)
    if auth.protocol == "grpc":
        proto.grpc_service.envoy_grpc.cluster_name = auth.cluster
        proto.grpc_service.timeout.CopyFrom(timeout)
        proto.disallowed_headers.CopyFrom(exact_strings(_FORGED))
    else:
        server = http_uri_pb2.HttpUri(
            uri="http://authorization", cluster=auth.cluster, timeout=timeout
        )
        proto.http_service.CopyFrom(_http_service(auth, server, requested))
        requested = [name for name in requested if name not in _FORGED]
    if requested:
        proto.allowed_headers.CopyFrom(exact_strings(requested))
    return extensions.extension(_EXT_AUTHZ, proto)


def _http_service(
    auth: ExternalAuth, server: http_uri_pb2.HttpUri, requested: Iterable[str]
) -> ext_authz_pb2.HttpService:
    added = [
        base_pb2.HeaderValue(key=name, value=_OWN_HEADERS[name])
        for name in requested
        if name in _OWN_HEADERS
    ]
    response = ext_authz_pb2.AuthorizationResponse(
        allowed_client_headers=exact_strings(_DENIED_HEADERS)
    )
    if auth.response_headers:
        response.dynamic_metadata_from_headers.CopyFrom(exact_strings(_copied_headers(auth)))
    else:
        any_header = string_pb2.StringMatcher(safe_regex=regex_pb2.RegexMatcher(regex="[^:].*"))
        response.allowed_upstream_headers.patterns.append(any_header)
    return ext_authz_pb2.HttpService(
        server_uri=server,
        path_prefix=auth.path,
        authorization_request=ext_authz_pb2.AuthorizationRequest(headers_to_add=added),
        authorization_response=response,
    )


def after_check(_context: EnvoyRouteContext, route: Route) -> EnvoyPiece | None:
    """Return the filter that replaces headers of the client by those of the server.

    The client's are removed also if the server sends none. Raises InvalidValueError.
    """
    auth = route.external_auth
    if auth is None or not auth.response_headers:
        return None
    return EnvoyPiece(filters=[copying_filter(auth)])


def copying_filter(auth: ExternalAuth) -> extension_pb2.TypedExtensionConfig:
    """Return the filter that replaces headers of the client by those of a server. Raises
    InvalidValueError."""
    mutations: list[_Mutation] = []
    for name in _copied_headers(auth):
        mutations.append(_Mutation(remove=name))
        value = f"%DYNAMIC_METADATA({_METADATA}:{name})%"
        mutations.append(_Mutation(append=headers.option(name, value)))
    return extensions.extension(
        "envoy.filters.http.header_mutation", extensions.request_mutations(mutations)
    )


def _copied_headers(auth: ExternalAuth) -> list[str]:
    """Return the names of the headers that backends get from a server, in lower case."""
    if not all(map(_PLAIN.fullmatch, auth.response_headers)):
        field = f"{auth.field}.http.allowedResponseHeaders"
        raise InvalidValueError(
            f"{field}: the name of a header must have only letters, digits and hyphens"
        )
    return [quoting.changed_header(name) for name in auth.response_headers]


def denials() -> list[manager_pb2.ResponseMapper]:
    """Return the changes of local replies to denied requests, which precede all others.

    A server that answers 204 does not permit a request (only 200 does), and the client must not
    take this for success. Everything else that a server answers stays, such as its challenge.
    """
    success, other = manager_pb2.ResponseMapper(), manager_pb2.ResponseMapper()
    flag = success.filter.and_filter.filters.add().response_flag_filter
    flag.flags.append(_DENIED_FLAG)
    comparison = success.filter.and_filter.filters.add().status_code_filter.comparison
    comparison.op = accesslog_pb2.ComparisonFilter.LE
    comparison.value.default_value = _LAST_SUCCESS
    comparison.value.runtime_key = "gh.none"
    success.status_code.value = 403
    other.filter.response_flag_filter.flags.append(_DENIED_FLAG)
    return [success, other]
