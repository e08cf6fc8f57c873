"""Request mirroring: copies are what the backend gets, whatever the order of the filters.

Their responses are discarded.
"""

from __future__ import annotations

from gatehouse.compiler.backends.nginx import (
    api_keys,
    functions,
    headers,
    names,
    quoting,
    rewriting,
)
from gatehouse.compiler.backends.nginx.backend_protocol import (
    http_version,
    module_of,
    pass_directive,
    tls_directives,
)
from gatehouse.compiler.backends.nginx.directives import (
    Directive,
    DirectiveNode,
    block,
    simple_directive,
)
from gatehouse.compiler.backends.nginx.route_context import NginxRouteContext, RoutePiece
from gatehouse.compiler.backends.nginx.weighted_upstreams import SHARE_STEPS, split_rows
from gatehouse.compiler.ir import http as ir

_UNCHANGED = "$request_uri"
"""Path and query as the client wrote them. Without it, the path of the location would be sent."""

_PATH = "gh_mirrored"
"""Variable with the decoded path of a mirrored request before it is rewritten."""


def mirror_directives(
    context: NginxRouteContext,
    route: ir.Route,
    action: ir.Forward,
    edit: ir.HeaderEdit,
    features: RoutePiece,
) -> RoutePiece:
    """Return the directives that mirror requests with the changes of their rule and backend.

    Its variables must precede the rewrite of the path. Raises InvalidValueError.
    """
    scope, targets, rewrite = context.location, action.mirrors, action.rewrite
    if not targets:
        return RoutePiece()
    changes = (
        *(edit, rewrite.hostname, features.claims),
        *(context.removed_headers, features.cookie, context.authorized),
    )
    maps: list[Directive] = []
    subrequests: list[Directive] = []
    needs_path = False
    has_own_path = rewrite.path is not None or api_keys.has_key_in_query(route)
    for number, mirror in enumerate(targets):
        cluster = context.clusters.get(mirror.cluster)
        steps = mirror.numerator * SHARE_STEPS // mirror.denominator
        if cluster is None or not cluster.endpoints or mirror.numerator <= 0:
            continue
        path = quoting.quote_literal(names.mirror_path(scope, str(number)))
        inner: list[DirectiveNode] = [simple_directive("internal")]
        if steps < SHARE_STEPS:
            variable = names.variable(scope, "mirror", str(number))
            maps.append(_share(variable, number, steps))
            inner.append(_unless_chosen(variable))
        module = module_of(cluster)
        # The gRPC module sends the path of the location, and no other.
        sets_path = has_own_path or module == "grpc"
        needs_path |= sets_path
        inner += [
            # NGINX ends the connection of the client if the backend of a copy changes the protocol.
            *headers.request_headers(module, *changes, upgrades=False),
            *(_rewritten(rewrite.path, route.match.path) if sets_path else ()),
            *_forwarded(context, cluster, module, "" if sets_path else _UNCHANGED),
        ]
        subrequests.append(block("location", ("=", path), inner))
    return RoutePiece(
        variables=(functions.set_argument(_PATH, "$uri"),) if needs_path else (),
        content=tuple(simple_directive("mirror", copy.arguments[1]) for copy in subrequests),
        maps=tuple(maps),
        subrequests=tuple(subrequests),
    )


def _unless_chosen(variable: str) -> Directive:
    """Return the block that sends no copy of a request beyond the share."""
    return block("if", (f"(${variable}", "=", '"")'), (simple_directive("return", "204"),))


def _forwarded(
    context: NginxRouteContext, cluster: ir.Cluster, module: str, path: str
) -> list[Directive]:
    """Return the directives that forward a copy. Raises InvalidValueError."""
    return [
        simple_directive(f"{module}_connect_timeout", "1s"),
        simple_directive(f"{module}_read_timeout", "10s"),
        *http_version(context, cluster),
        *tls_directives(module, cluster),
        pass_directive(cluster, cluster.name, path),
    ]


def _share(variable: str, number: int, steps: int) -> Directive:
    """Return the map to a value for requests that are copied, and to an empty one for others."""
    # A smaller share than NGINX distinguishes is the smallest one.
    copied = max(1, steps)
    rows = split_rows((('"1"', copied), ('""', SHARE_STEPS - copied)))
    return block("split_clients", (f'"${{request_id}}{number}"', f"${variable}"), rows)


def _rewritten(rewrite: ir.PathRewrite | None, path_match: ir.PathMatch) -> list[Directive]:
    """Return the directives that give a copy the path of its request, rewritten if it is.

    NGINX encodes the result again, so that a decoded path cannot change the request.
    """
    return [
        simple_directive("rewrite", quoting.word("^"), f"${_PATH}"),
        *(rewriting.rewrites(rewrite, path_match) if rewrite is not None else ()),
        simple_directive("break"),
    ]
