"""Routes whose users an authenticator knows: it is asked about each request, and logs users in.

Envoy's ``ext_authz`` asks it, brought by the route itself: 200 lets a request on, any other answer
is the client's, such as the redirection to the provider. Nothing of what a client sent reaches it
but what is written here. Who cannot be asked lets nobody in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from envoy.config.cluster.v3 import cluster_pb2
from envoy.config.core.v3 import address_pb2, base_pb2, extension_pb2, http_uri_pb2
from envoy.config.endpoint.v3 import endpoint_components_pb2
from envoy.config.route.v3 import route_components_pb2 as components
from envoy.extensions.filters.http.ext_authz.v3 import ext_authz_pb2
from envoy.type.matcher.v3 import string_pb2
from envoy.type.v3 import http_status_pb2

from gatehouse.compiler.backends import relying_parties
from gatehouse.compiler.backends.envoy import (
    clusters,
    headers,
    names,
    quoting,
    rewriting,
    route_match,
)
from gatehouse.compiler.backends.envoy.protobufs import packed, written
from gatehouse.compiler.backends.envoy.quoting import InvalidValueError
from gatehouse.compiler.backends.envoy.route_context import Context
from gatehouse.compiler.ir import gateway as ir_gateway
from gatehouse.compiler.ir import http as ir
from gatehouse.compiler.ir.authentication import Basic, Oidc
from gatehouse.dataplane.xds import sidecar_configs
from gatehouse.dataplane.xds.resources import CLUSTER, Resource
from gatehouse.sidecars.authenticator import config
from gatehouse.sidecars.authenticator.config import Party, Realm

AUTHORIZATION_TIMEOUT_SECONDS = 60.0
"""For an answer: it may take several of the provider's."""

AWAY = 503
"""Answered where the authenticator is away, or fails, or cannot reach the provider."""

_ANSWERED = ("cache-control", "content-type", "location", "referrer-policy", "set-cookie")


def guard(context: Context, wanted: Oidc) -> Any:
    """Give the filter that lets in those alone whom the provider knows. Raises InvalidValueError."""
    if not context.capabilities.authenticators:
        why = "OpenID Connect needs an agent with an authenticator"
        raise InvalidValueError(f"AuthenticationFilter {wanted.filter}: spec.oidc: {why}")
    if wanted in context.taken:
        path = context.taken[wanted]
        raise InvalidValueError(f"the path {path} is another AuthenticationFilter's already")
    party = _party(wanted)
    said = {
        "x-origin": _origin(context),
        "x-uri": "%REQ(:PATH)%",
        "x-upgrade": "%REQ(UPGRADE)%",
        "x-mode": "%REQ(SEC-FETCH-MODE)%",
    }
    return _asking(party.name, said, passed="cookie", kept="authorization",
                   told=("cookie", *party.headers))  # fmt: skip


def passwords(wanted: Basic) -> Any:
    """Give the filter that lets in those alone whose passwords an authenticator knows."""
    return _asking(_realm(wanted).name, {}, passed="authorization", kept="cookie", told=())


def _asking(
    name: str, said: Mapping[str, str], *, passed: str, kept: str, told: Sequence[str]
) -> Any:
    """Ask ``name``. ``passed``, ``kept``: headers of the client that it is told, or not."""
    service = ext_authz_pb2.HttpService(
        server_uri=http_uri_pb2.HttpUri(
            uri="http://authenticator",
            cluster=names.AUTHENTICATOR,
            timeout=quoting.seconds(AUTHORIZATION_TIMEOUT_SECONDS),
        ),
        # What Envoy puts behind it, the request's own path, is a query that nobody reads.
        path_prefix=f"/{name}/admit?",
        authorization_request=ext_authz_pb2.AuthorizationRequest(
            headers_to_add=[
                base_pb2.HeaderValue(key=header, value=value) for header, value in said.items()
            ]
        ),
        authorization_response=ext_authz_pb2.AuthorizationResponse(
            allowed_client_headers=_exactly(*_ANSWERED),
            allowed_client_headers_on_success=_exactly("set-cookie"),
        ),
    )
    if told:
        # Without a list none is passed on; an empty one is refused.
        service.authorization_response.allowed_upstream_headers.CopyFrom(_exactly(*told))
    made = ext_authz_pb2.ExtAuthz(
        http_service=service,
        transport_api_version="V3",
        allowed_headers=_exactly(passed),
        disallowed_headers=_exactly(kept),
        status_on_error=http_status_pb2.HttpStatus(code=AWAY),
    )
    return extension_pb2.TypedExtensionConfig(
        name="envoy.filters.http.ext_authz", typed_config=packed(made)
    )


def _exactly(*wanted: str) -> Any:
    patterns = [string_pb2.StringMatcher(exact=each) for each in wanted]
    return string_pb2.ListStringMatcher(patterns=patterns)


def _origin(context: Context) -> str:
    return f"{context.scheme}://%REQ(:AUTHORITY)%"


def _party(wanted: Oidc) -> Party:
    told = tuple(
        quoting.changed_header(header) for _, header in relying_parties.claim_headers(wanted)
    )
    return relying_parties.party(wanted, _file, told)


def _realm(wanted: Basic) -> Realm:
    name = names.digest(wanted.filter, wanted.realm, wanted.users)
    return Realm(name, wanted.filter, wanted.realm, _file(wanted.users))


def _file(secret: str) -> str:
    return f"secrets/{secret}"


def taken(host: ir.VirtualHost) -> dict[Oidc, str]:
    """Give who cannot be served since another one of the host has a path of theirs: which one."""
    owners: dict[str, Oidc] = {}
    found: dict[Oidc, str] = {}
    for wanted in _wanted(host):
        lost = [path for path in _paths(wanted) if owners.get(path, wanted) != wanted]
        if lost:
            found[wanted] = lost[0]
        else:
            owners |= dict.fromkeys(_paths(wanted), wanted)
    return found


def _wanted(host: ir.VirtualHost) -> dict[Oidc, None]:
    return {
        route.authentication: None
        for route in host.routes
        if isinstance(route.authentication, Oidc)
    }


def _paths(wanted: Oidc) -> dict[str, str]:
    """Give what is done at paths of its own."""
    found = {
        wanted.callback: "callback",
        wanted.logout.path: "logout",
        wanted.logout.front_channel: "ended",
    }
    return {path: action for path, action in found.items() if path}


def routes(context: Context, host: ir.VirtualHost) -> Iterator[Any]:
    """Give the routes that go before a host's own: to the authenticator itself."""
    if not context.capabilities.authenticators:
        return
    for wanted in _wanted(host):
        if wanted not in context.taken:
            try:
                yield from _own(context, wanted)
            except InvalidValueError:
                # Its routes say why, and lead nobody here.
                continue


def _own(context: Context, wanted: Oidc) -> list[Any]:
    party, found = _party(wanted), []
    for path, action in _paths(wanted).items():
        exact = ir.PathExact(path)
        made = components.Route(
            name=f"{wanted.filter}/{action}", match=route_match.match(ir.Match(exact))
        )
        made.route.cluster = names.AUTHENTICATOR
        made.route.timeout.CopyFrom(quoting.seconds(AUTHORIZATION_TIMEOUT_SECONDS))
        onward = rewriting.rewrite(ir.FullPath(f"/{party.name}/{action}"), exact)
        made.route.regex_rewrite.CopyFrom(onward)
        made.request_headers_to_add.append(headers.option("x-origin", _origin(context)))
        made.request_headers_to_remove.append("authorization")
        made.response_headers_to_remove.append("server")
        found.append(made)
    return found


def needed(
    hosts: Iterable[ir.VirtualHost], asks: Callable[[ir.Route], bool]
) -> frozenset[tuple[Oidc | Basic, str]]:
    """Give every filter that hosts need an authenticator for, with the routes that have it."""
    return frozenset(
        (route.authentication, "/".join(route.name.split("/")[:2]))
        for host in hosts
        for route in host.routes
        if isinstance(route.authentication, Oidc | Basic) and asks(route)
    )


def resources(
    wanted: Mapping[Oidc | Basic, Sequence[str]], secrets: Mapping[str, ir_gateway.SecretFile]
) -> list[Resource]:
    """Give what an authenticator and Envoy need to find each other, if any route needs one.

    ``wanted``: with the routes, for people.
    """
    found = []
    for each, origins in wanted.items():
        try:
            name, files = _described(each, secrets)
        except (KeyError, InvalidValueError):
            # Nobody asks for it: its routes answer 500, and say why.
            continue
        found.append(sidecar_configs.resource("authenticator", name, files, origins=tuple(origins)))
    return [*found, _cluster()] if found else []


def _described(
    wanted: Oidc | Basic, secrets: Mapping[str, ir_gateway.SecretFile]
) -> tuple[str, dict[str, bytes]]:
    """Give the name of what is wanted, and its files. Raises KeyError and InvalidValueError."""
    if isinstance(wanted, Basic):
        realm = _realm(wanted)
        described = {
            config.FILE: config.encode([]),
            config.PASSWORDS: config.encode([realm]),
        }
        return realm.name, described | _secrets(secrets, wanted.users)
    party = _party(wanted)
    described = {config.FILE: config.encode([party])}
    files = _secrets(secrets, wanted.secret, wanted.trust, wanted.revoked)
    return party.name, described | files


def _secrets(secrets: Mapping[str, ir_gateway.SecretFile], *wanted: str) -> dict[str, bytes]:
    return {_file(name): secrets[name].content.reveal() for name in wanted if name}


def _cluster() -> Resource:
    made = clusters.base(names.AUTHENTICATOR)
    made.type = cluster_pb2.Cluster.STATIC
    made.ClearField("eds_cluster_config")
    made.load_assignment.cluster_name = names.AUTHENTICATOR
    # Relative to the directory in which Envoy runs.
    pipe = address_pb2.Address(pipe=address_pb2.Pipe(path=config.SOCKET))
    made.load_assignment.endpoints.add().lb_endpoints.add(
        endpoint=endpoint_components_pb2.Endpoint(address=pipe)
    )
    clusters.set_idle_timeout(made, clusters.IDLE_TIMEOUT_SECONDS)
    return Resource.make(CLUSTER, names.AUTHENTICATOR, written(made))
