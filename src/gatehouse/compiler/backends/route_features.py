"""Features of routes as records: each back end has one ordered list of them.

A back end composes its list around every kind of answer: a forwarded request, a redirect, a fixed
response, a backend without endpoints. So no answer can skip a feature.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

import msgspec

from gatehouse.compiler.ir import http as ir
from gatehouse.compiler.ir.unsupported import UnsupportedSetting

Context = TypeVar("Context")
Piece = TypeVar("Piece")


class Phase(enum.IntEnum):
    """Phase of an exchange. A list of features is in the order of their phases."""

    OBSERVATION = 1
    """Log and spans name the route, whatever answers."""
    PREFLIGHT = 2
    """Browsers send preflight requests without credentials, so that no check may reject them."""
    LIMITS = 3
    """Limits cost less than the checks after them, and protect the servers that these ask."""
    AUTHORIZATION = 4
    """An authorization server gets the request as the client sent it. It may be the one that asks
    for credentials."""
    AUTHENTICATION = 5
    """Only requests that the limits and the authorization server permit reach a login."""
    REQUEST = 6
    """Changes of a request that passed all checks, such as its session."""
    RESPONSE = 7
    """Changes of responses, of those of the checks, too."""
    BACKEND = 8
    """Settings of connections to backends."""


def no_piece(_context: object, _route: ir.Route) -> None:
    """Return no piece, for a feature that the answer of a route itself has, and that is listed for
    its findings."""


def no_findings(_context: object, _route: ir.Route) -> Iterable[UnsupportedSetting]:
    """Return the findings of a feature that the proxy supports entirely: none."""
    return ()


class RouteFeature(msgspec.Struct, Generic[Context, Piece], frozen=True):
    """A feature of routes in one back end."""

    name: str
    phase: Phase
    piece: Callable[[Context, ir.Route], Piece | None] = no_piece
    """Returns the feature's part of the configuration; None: the route does not use the feature.
    Raises InvalidValueError for a route that must not be served without it."""
    unsupported: Callable[[Context, ir.Route], Iterable[UnsupportedSetting]] = no_findings
    """Returns the settings without which the route is served."""


class RouteFeatures(Generic[Context, Piece]):
    """All features of routes in one back end."""

    def __init__(self, records: Iterable[RouteFeature[Context, Piece]]) -> None:
        self.records = tuple(records)
        """In the order in which they see a request."""
        self._pieces = tuple(
            (one.phase, one.piece) for one in self.records if one.piece != no_piece
        )
        unsupported = (one.unsupported for one in self.records)
        self._unsupported = tuple(one for one in unsupported if one != no_findings)

    def pieces(self, context: Context, route: ir.Route) -> list[tuple[Phase, Piece]]:
        """Return the pieces of a route with their phases, in the order of its features."""
        pieces = self._pieces
        return [(p, piece) for p, make in pieces if (piece := make(context, route)) is not None]

    def findings(self, context: Context, route: ir.Route) -> list[UnsupportedSetting]:
        """Return the settings of a route that the proxy does not support."""
        return [one for unsupported in self._unsupported for one in unsupported(context, route)]
