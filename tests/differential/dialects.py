"""Proxies differ where the specification leaves them a choice; what each of them chooses."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace

import oracle
from connections import Seen
from exchange import Expected, Object, Request
from proxies import Runner, with_envoy, with_nginx

Adaptation = Callable[[list[Object], Request, Expected, Seen], Expected | None]


@dataclass(frozen=True)
class Dialect:
    """A proxy, and what it makes of the oracle's choices."""

    name: str
    runner: Runner
    adapted: Adaptation
    """Gives what is expected of this proxy; None where nothing is."""


def _nginx(_: list[Object], __: Request, expected: Expected, ___: Seen) -> Expected:
    return expected


def _envoy(
    routes: list[Object], request: Request, expected: Expected, seen: Seen
) -> Expected | None:
    if expected.status == 400 or _unsaid(routes, request, expected):
        return None
    if request.header("content-type") == "application/grpc" and expected.status != 200:
        # CHOICE: a call that is not forwarded fails as calls do, which has the status 200.
        failed = dict(seen.headers).get("grpc-status", "0") != "0"
        return Expected(200) if failed else expected
    if request.header("upgrade") and seen.status == 200:
        # CHOICE: of an answer that does not upgrade a connection the body is left out.
        return Expected(200, response=expected.response)
    if expected.path is None and expected.backends:
        # CHOICE: paths are sent as they are compared.
        return replace(expected, path=oracle.normalised(request.target))
    return expected


def _unsaid(routes: list[Object], request: Request, expected: Expected) -> bool:
    """Whether the answer hangs on what is Envoy's own to decide."""
    names = [name.lower() for name, _ in request.headers]
    path, _, query = request.target.partition("?")
    odd = not request.target.isascii() or "\\" in path or "%5c" in path.lower() or path == "//"
    # CHOICE: names that can be written in several ways are looked for in the whole query.
    unsure = "%C3%A9=" in query or "a%5B0%5D=" in query
    # CHOICE: a path in a redirection has no dot segments.
    dotted = bool(expected.location) and re.search(r"/(\.|%2e){1,2}(/|$)", path, re.I) is not None
    return odd or unsure or dotted or len(names) != len(set(names))


NGINX = Dialect("nginx", with_nginx, _nginx)
ENVOY = Dialect("envoy", with_envoy, _envoy)
