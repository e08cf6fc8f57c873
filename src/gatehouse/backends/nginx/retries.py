"""Retries: a chain of named locations, each of which is tried when the one before it failed.

NGINX's own ``proxy_next_upstream`` never asks one endpoint twice, knows few status codes and no
pause; the chain has none of these limits. Matching stays where it is: this is the answers' path.
"""

from __future__ import annotations

from collections.abc import Sequence

from gatehouse.backends.nginx import names
from gatehouse.backends.nginx.quoting import UnwritableError
from gatehouse.backends.nginx.served import Body, Context
from gatehouse.backends.nginx.tree import Directive, Node, block, simple
from gatehouse.ir import http as ir

FAILURES = (502, 504)
"""What NGINX answers when a connection failed or took too long."""


def attempts(
    context: Context,
    route: ir.Route,
    backend: ir.Backend,
    module: str,
    retry: ir.Retry | None,
    inner: Sequence[Node],
    sent: Directive,
) -> Body:
    """Give the inside of the location of the first attempt, and those of the others."""
    if retry is None:
        return Body((*inner, sent))
    if retry.backoff:
        raise UnwritableError("a pause between attempts (retry.backoff) cannot be made by NGINX")
    codes = [str(code) for code in sorted({*retry.codes, *FAILURES})]
    destinations = [
        names.route(context.scope, f"{route.name}/{backend.cluster}/retry", number + 1)
        for number in range(retry.attempts)
    ]
    # NGINX's own retries would multiply ours.
    once = simple(f"{module}_next_upstream", "off")
    inner = [node for node in inner if not _is(node, once.name)]

    # A mirror in every attempt would copy the request again, so only the first one has it.
    repeated = [node for node in inner if not _is(node, "mirror")]

    def attempt(nodes: Sequence[Node], onward: str | None) -> tuple[Node, ...]:
        if onward is None:
            return (*nodes, once, sent)
        caught = [
            simple(f"{module}_intercept_errors", "on"),
            simple("error_page", *codes, "=", onward),
        ]
        return (*nodes, once, *caught, sent)

    following = [*destinations[1:], None]
    locations = [
        block("location", (name,), attempt(repeated, onward))
        for name, onward in zip(destinations, following, strict=True)
    ]
    return Body(attempt(inner, destinations[0]), locations=tuple(locations))


def _is(node: Node, name: str) -> bool:
    return isinstance(node, Directive) and node.name == name
