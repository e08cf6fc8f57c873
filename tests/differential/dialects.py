"""Differences between proxies where the specification permits them."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace

from differential import oracle
from differential.connections import Seen
from differential.exchange import Expected, Request
from differential.proxies import Runner, with_envoy, with_nginx

Adaptation = Callable[[Request, Expected, Seen], Expected | None]


@dataclass(frozen=True)
class Dialect:
    """A proxy, and its choices where the specification leaves them open."""

    name: str
    runner: Runner
    adapted: Adaptation
    """Returns the expected response of this proxy; None if any is permitted."""
    patterns_see: Callable[[str], bytes | None]
    """Returns the part of a target that regular expressions match."""


def _nginx(request: Request, expected: Expected, _: Seen) -> Expected:
    return _failed_call(request, expected) or expected


def _envoy(request: Request, expected: Expected, response: Seen) -> Expected | None:
    if expected.status == 400 or _is_unspecified(request, expected):
        return None
    if call := _failed_call(request, expected):
        return call
    if request.header("upgrade") and response.status == 200:
        # CHOICE: the body of a response that does not upgrade a connection is removed, so that its
        # backend is unknown.
        return Expected(expected.status)
    # CHOICE: the final dot of a host is not sent to backends.
    expected = replace(expected, host=re.sub(r"\.(?=:\d*$|$)", "", expected.host))
    if expected.path is None and expected.backends:
        # CHOICE: paths are sent as they are compared.
        return replace(expected, path=oracle.normalised(request.target))
    return expected


def _failed_call(request: Request, expected: Expected) -> Expected | None:
    """Return the expected response to a gRPC call that matches no route; None for other requests.

    All calls are sent to hostnames of GRPCRoutes: NGINX knows calls only there, Envoy on all
    hostnames.
    """
    if request.header("content-type") != "application/grpc" or expected.status != 404:
        return None
    # CHOICE: the call fails with a status of gRPC, UNIMPLEMENTED, and the HTTP status 200.
    return Expected(200, response={"grpc-status": "12"})


def _is_unspecified(request: Request, expected: Expected) -> bool:
    """Return whether Envoy is free to choose the response."""
    names = [name.lower() for name, _ in request.headers]
    path, _, query = request.target.partition("?")
    return (
        # CHOICE: of several lines of one header each may match.
        len(names) != len(set(names))
        # CHOICE: names with several spellings are searched in the whole query.
        or "%C3%A9=" in query
        or "a%5B0%5D=" in query
        # CHOICE: a parameter without a value equals an empty one.
        or (query != "" and any("=" not in part for part in query.split("&")))
        # CHOICE: the requested port stays in a redirect to a hostname under a wildcard.
        or (bool(expected.location) and ":" in request.asked)
        or _odd(path, redirected=bool(expected.location))
    )


def _odd(path: str, *, redirected: bool) -> bool:
    """Return whether Envoy's normal form of a path differs from the oracle's."""
    steps = re.search(r"/(\.|%2e){1,2}(/|$)", path, re.IGNORECASE) is not None
    slashes = re.search(r"(/|%2f){2}", path, re.IGNORECASE) is not None
    # CHOICE: a backslash is a slash, and two slashes alone stay two; dot segments are resolved
    # first.
    return (
        not path.isascii()
        or "\\" in path
        or "%5c" in path.lower()
        or (oracle.normalised(path) == b"/" and path != "/")
        or (steps and (slashes or redirected))
    )


def _as_sent(target: str) -> bytes | None:
    """CHOICE: regular expressions see what is sent, in which only letters and slashes are decoded.

    (RFC 3986, 6.2.2.2.)
    """
    decoded = re.sub("%[0-9A-Fa-f]{2}", _letter, target.partition("?")[0])
    return oracle.resolved(decoded.encode(errors="surrogateescape"))


def _letter(code: re.Match[str]) -> str:
    letter = chr(int(code[0][1:], 16))
    return letter if re.fullmatch("[A-Za-z0-9._~/-]", letter) else code[0]


NGINX = Dialect("nginx", with_nginx, _nginx, oracle.normalised)
ENVOY = Dialect("envoy", with_envoy, _envoy, _as_sent)
