"""Request mirroring: copies are sent unchanged; their responses are discarded."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from gatehouse.compiler.backends.nginx import headers, names
from gatehouse.compiler.backends.nginx.backend_protocol import (
    http_version,
    pass_directive,
    tls_directives,
)
from gatehouse.compiler.backends.nginx.directives import Directive, Node, block, simple
from gatehouse.compiler.backends.nginx.route_context import Context, Guard
from gatehouse.compiler.ir import http as ir


class Copies(msgspec.Struct, frozen=True):
    """Directives of the mirrored location, and the maps and locations that they need."""

    directives: tuple[Directive, ...] = ()
    maps: tuple[Directive, ...] = ()
    locations: tuple[Directive, ...] = ()


def mirrors(context: Context, targets: Sequence[ir.Mirror], scope: str, guarded: Guard) -> Copies:
    """Return the directives that mirror requests. Raises InvalidValueError."""
    claims = [(name, f'"${{{variable}}}"') for name, variable in guarded.claim_headers]
    request = headers.request(
        "proxy", ir.HeaderEdit(), None, scope, claims, context.removed_headers, guarded.cookie
    )
    directives: list[Directive] = []
    maps: list[Directive] = []
    locations: list[Directive] = []
    for number, mirror in enumerate(targets):
        cluster = context.clusters.get(mirror.cluster)
        share = mirror.numerator / mirror.denominator
        if cluster is None or not cluster.endpoints or share <= 0:
            continue
        path = names.mirror_path(scope, str(number))
        inner: list[Node] = [simple("internal")]
        if share < 1:
            variable = names.variable(scope, "mirror", str(number))
            rows = (simple(f"{share * 100:.2f}%", '"1"'), simple("*", '""'))
            key = f'"${{request_id}}{number}"'
            maps.append(block("split_clients", (key, f"${variable}"), rows))
            inner.append(block("if", (f"(${variable}", "=", '"")'), (simple("return", "204"),)))
        # The variable sends the path as the client wrote it; otherwise the location's would be
        # sent.
        inner += [
            simple("proxy_connect_timeout", "1s"),
            simple("proxy_read_timeout", "10s"),
            *request.directives,
            *http_version(context, cluster),
            *tls_directives("proxy", cluster),
            pass_directive(cluster, cluster.name, "$request_uri"),
        ]
        directives.append(simple("mirror", path))
        locations.append(block("location", ("=", path), inner))
    return Copies(tuple(directives), tuple(maps), tuple(locations))
