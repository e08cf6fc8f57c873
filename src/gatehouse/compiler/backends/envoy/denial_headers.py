"""Response headers of routes whose answers are Envoy's own.

Envoy changes the headers of such an answer, but not those of a filter that rejects a request before
it. So a filter changes both.
"""

from __future__ import annotations

from envoy.config.common.mutation_rules.v3 import mutation_rules_pb2
from envoy.config.core.v3 import extension_pb2
from envoy.config.route.v3 import route_components_pb2 as components
from envoy.extensions.filters.http.header_mutation.v3 import header_mutation_pb2

from gatehouse.compiler.backends.envoy import headers
from gatehouse.compiler.backends.envoy.protobufs import packed
from gatehouse.compiler.backends.envoy.route_context import EnvoyPiece, EnvoyRouteContext
from gatehouse.compiler.ir import http as ir

_Mutation = mutation_rules_pb2.HeaderMutation


def has_filter(route: ir.Route) -> bool:
    """Return whether a filter changes the response headers of a route, in place of its action."""
    checks = (
        route.authentication,
        route.external_auth,
        route.client_addresses,
        route.settings.rates.limits,
    )
    is_own = not isinstance(route.action, ir.Forward)
    return is_own and bool(route.response_headers) and any(checks)


def denial_headers(_context: EnvoyRouteContext, route: ir.Route) -> EnvoyPiece | None:
    """Return the filter that changes the headers of all responses. Raises InvalidValueError."""
    if not has_filter(route):
        return None
    changes = components.Route()
    headers.apply_headers(changes, "response", route.response_headers)
    mutations = [_Mutation(remove=name) for name in changes.response_headers_to_remove]
    mutations += [_Mutation(append=option) for option in changes.response_headers_to_add]
    proto = header_mutation_pb2.HeaderMutation(
        mutations=header_mutation_pb2.Mutations(response_mutations=mutations)
    )
    config = extension_pb2.TypedExtensionConfig(
        name="envoy.filters.http.header_mutation", typed_config=packed(proto)
    )
    return EnvoyPiece(filters=[config])
