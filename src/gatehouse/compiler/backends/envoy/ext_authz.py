"""OpenID Connect and passwords: an authenticator checks each request and handles logins.

A route adds Envoy's ``ext_authz`` filter: 200 permits a request, any other response is returned to
the client, such as a redirect to the provider. Only the headers written here are passed to the
authenticator. If it is unavailable, requests are rejected.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from envoy.config.cluster.v3 import cluster_pb2
from envoy.config.core.v3 import (
    address_pb2,
    base_pb2,
    config_source_pb2,
    extension_pb2,
    http_uri_pb2,
)
from envoy.config.endpoint.v3 import endpoint_components_pb2
from envoy.config.route.v3 import route_components_pb2 as components
from envoy.extensions.filters.http.ext_authz.v3 import ext_authz_pb2

from gatehouse.compiler.backends import relying_parties
from gatehouse.compiler.backends.envoy import (
    clusters,
    extensions,
    headers,
    names,
    quoting,
    rewriting,
    route_match,
)
from gatehouse.compiler.backends.envoy.protobufs import exact_strings, http_status, written
from gatehouse.compiler.backends.envoy.route_context import EnvoyRouteContext
from gatehouse.compiler.backends.failures import InvalidValueError
from gatehouse.compiler.backends.fragments import Need
from gatehouse.compiler.ir import gateway as ir_gateway
from gatehouse.compiler.ir import http as ir
from gatehouse.compiler.ir.authentication import Basic, Oidc
from gatehouse.dataplane.origin import NO_ORIGIN, Origin
from gatehouse.dataplane.xds import sidecar_configs
from gatehouse.dataplane.xds.resources import CLUSTER_TYPE_URL, XdsResource
from gatehouse.sidecars.authenticator import config
from gatehouse.sidecars.authenticator.config import Party, Realm

AUTHORIZATION_TIMEOUT_SECONDS = 60.0
"""Timeout of the authenticator in seconds: it may need several responses of the provider."""

STATUS_ON_ERROR = 503
"""Status of the response if the authenticator fails, or is or finds the provider unavailable."""

_ANSWERED = ("cache-control", "content-type", "location", "referrer-policy", "set-cookie")


def ext_authz_filter(context: EnvoyRouteContext, oidc: Oidc) -> extension_pb2.TypedExtensionConfig:
    """Return the filter that permits authenticated users only. Raises InvalidValueError."""
    if not context.capabilities.authenticators:
        why = "OpenID Connect requires an agent with an authenticator"
        raise InvalidValueError(why, oidc.origin)
    relying_parties.check_login(oidc, context.conflicts)
    party = _party(oidc)
    request_headers = {
        "x-origin": _origin(context),
        "x-uri": "%REQ(:PATH)%",
        "x-upgrade": "%REQ(UPGRADE)%",
        "x-mode": "%REQ(SEC-FETCH-MODE)%",
    }
    return _ext_authz(party.name, request_headers, allowed="cookie", disallowed="authorization",
                      upstream=("cookie", *party.headers))  # fmt: skip


def passwords(basic: Basic) -> extension_pb2.TypedExtensionConfig:
    """Return the filter that permits only users whose password an authenticator accepts."""
    return _ext_authz(
        _realm(basic).name, {}, allowed="authorization", disallowed="cookie", upstream=()
    )


def _ext_authz(
    name: str,
    request_headers: Mapping[str, str],
    *,
    allowed: str,
    disallowed: str,
    upstream: Sequence[str],
) -> extension_pb2.TypedExtensionConfig:
    """Return the filter that calls ``name``.

    ``allowed``, ``disallowed``: client headers that are passed to it, or not. ``upstream``: headers
    of its response for the backend.
    """
    service = ext_authz_pb2.HttpService(
        server_uri=http_uri_pb2.HttpUri(
            uri="http://authenticator",
            cluster=names.AUTHENTICATOR,
            timeout=quoting.duration_of(AUTHORIZATION_TIMEOUT_SECONDS),
        ),
        # Envoy appends the path of the request: the authenticator ignores the query.
        path_prefix=f"/{name}/admit?",
        authorization_request=ext_authz_pb2.AuthorizationRequest(
            headers_to_add=[
                base_pb2.HeaderValue(key=header, value=value)
                for header, value in request_headers.items()
            ]
        ),
        authorization_response=ext_authz_pb2.AuthorizationResponse(
            allowed_client_headers=exact_strings(_ANSWERED),
            allowed_client_headers_on_success=exact_strings(["set-cookie"]),
        ),
    )
    if upstream:
        # Without a list no header is passed on; Envoy rejects an empty list.
        service.authorization_response.allowed_upstream_headers.CopyFrom(exact_strings(upstream))
    proto = ext_authz_pb2.ExtAuthz(
        http_service=service,
        transport_api_version=config_source_pb2.V3,
        allowed_headers=exact_strings([allowed]),
        disallowed_headers=exact_strings([disallowed]),
        status_on_error=http_status(STATUS_ON_ERROR),
    )
    return extensions.extension("envoy.filters.http.ext_authz", proto)


def _origin(context: EnvoyRouteContext) -> str:
    return f"{context.scheme}://%REQ(:AUTHORITY)%"


def _party(oidc: Oidc) -> Party:
    claim_headers = tuple(
        quoting.changed_header(header) for _, header in relying_parties.claim_headers(oidc)
    )
    return relying_parties.party(oidc, _file, claim_headers)


def _realm(basic: Basic) -> Realm:
    name = names.short_digest(_name(basic.origin), basic.realm, basic.users)
    return Realm(name, _name(basic.origin), basic.realm, _file(basic.users))


def _name(origin: Origin) -> str:
    return f"{origin.namespace}/{origin.name}" if origin != NO_ORIGIN else ""


def _file(secret: str) -> str:
    return f"secrets/{secret}"


def authenticator_routes(
    context: EnvoyRouteContext, host: ir.VirtualHost
) -> Iterator[components.Route]:
    """Return the routes to the authenticator itself, which precede those of the host."""
    if not context.capabilities.authenticators:
        return
    for oidc in relying_parties.parties_of(host):
        if oidc not in context.conflicts:
            try:
                yield from _own(context, oidc)
            except InvalidValueError:
                # Reported for the routes that use it; no request is redirected here.
                continue


def _own(context: EnvoyRouteContext, oidc: Oidc) -> list[components.Route]:
    party, result = _party(oidc), []
    for path, action in relying_parties.login_paths(oidc).items():
        exact = ir.PathExact(path)
        proto = components.Route(
            name=f"{oidc.owner}/{action}", match=route_match.match(ir.Match(exact))
        )
        proto.route.cluster = names.AUTHENTICATOR
        proto.route.timeout.CopyFrom(quoting.duration_of(AUTHORIZATION_TIMEOUT_SECONDS))
        onward = rewriting.rewrite(ir.FullPath(f"/{party.name}/{action}"), exact)
        assert onward is not None
        proto.route.regex_rewrite.CopyFrom(onward)
        proto.request_headers_to_add.append(headers.option("x-origin", _origin(context)))
        proto.request_headers_to_remove.append("authorization")
        proto.response_headers_to_remove.append("server")
        result.append(proto)
    return result


def needed(
    hosts: Iterable[ir.VirtualHost], uses_authenticator: Callable[[ir.Route], bool]
) -> frozenset[Need]:
    """Return the filters that need an authenticator, each with an object that uses it."""
    used = {
        (route.authentication, route.origin.whole)
        for host in hosts
        for route in host.routes
        if isinstance(route.authentication, Oidc | Basic) and uses_authenticator(route)
    }
    return frozenset((_name(use[0].origin), repr(use), use) for use in used)


def authenticator_resources(
    filters: Mapping[Oidc | Basic, Sequence[Origin]], secrets: Mapping[str, ir_gateway.SecretFile]
) -> list[XdsResource]:
    """Return the authenticator's configuration and cluster, if any route needs one.

    ``filters``: the routes that use each filter.
    """
    result = []
    for authentication, origins in filters.items():
        try:
            name, files = _configuration(authentication, secrets)
        except (KeyError, InvalidValueError):
            # Its routes answer 500 and are reported: no request uses it.
            continue
        result.append(
            sidecar_configs.resource("authenticator", name, files, origins=tuple(origins))
        )
    return [*result, _cluster()] if result else []


def _configuration(
    authentication: Oidc | Basic, secrets: Mapping[str, ir_gateway.SecretFile]
) -> tuple[str, dict[str, bytes]]:
    """Return the name of an authenticator configuration and its files.

    Raises KeyError if a secret is missing, and InvalidValueError.
    """
    if isinstance(authentication, Basic):
        realm = _realm(authentication)
        config_files = {
            config.AUTHENTICATORS_FILE: config.encode_parties([]),
            config.PASSWORDS: config.encode_parties([realm]),
        }
        return realm.name, config_files | _secrets(secrets, authentication.users)
    party = _party(authentication)
    config_files = {config.AUTHENTICATORS_FILE: config.encode_parties([party])}
    files = _secrets(secrets, authentication.secret, authentication.trust, authentication.revoked)
    return party.name, config_files | files


def _secrets(secrets: Mapping[str, ir_gateway.SecretFile], *secret_names: str) -> dict[str, bytes]:
    return {_file(name): secrets[name].content.reveal() for name in secret_names if name}


def _cluster() -> XdsResource:
    proto = clusters.base(names.AUTHENTICATOR)
    proto.type = cluster_pb2.Cluster.STATIC
    proto.ClearField("eds_cluster_config")
    proto.load_assignment.cluster_name = names.AUTHENTICATOR
    # Relative to the working directory of Envoy.
    pipe = address_pb2.Address(pipe=address_pb2.Pipe(path=config.REQUESTS_SOCKET))
    proto.load_assignment.endpoints.add().lb_endpoints.add(
        endpoint=endpoint_components_pb2.Endpoint(address=pipe)
    )
    clusters.set_idle_timeout(proto, clusters.IDLE_TIMEOUT_SECONDS)
    return XdsResource.make(CLUSTER_TYPE_URL, names.AUTHENTICATOR, written(proto))
