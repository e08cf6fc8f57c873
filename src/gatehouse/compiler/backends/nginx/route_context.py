"""Types shared by the modules of features and actions: pieces of locations, and their context."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from gatehouse.compiler.backends.fragments import Need
from gatehouse.compiler.backends.nginx.capabilities import NginxCapabilities
from gatehouse.compiler.backends.nginx.directives import Directive, DirectiveNode
from gatehouse.compiler.ir import http as ir
from gatehouse.compiler.ir.authentication import Oidc
from gatehouse.compiler.ir.settings import ClientSettings
from gatehouse.compiler.ir.tracing import SpanAttribute

_Clusters = Mapping[str, ir.Cluster]

UPSTREAM, DEFINITION, RELYING_PARTY = "upstream", "definition", "relying party"
"""Kinds of needs."""


class SharedUpstream(msgspec.Struct, frozen=True):
    """An upstream that routes of any virtual host may need."""

    shares: tuple[tuple[str, int], ...]
    """Names of clusters, with their weights."""
    by: str = ""
    """The variable that selects the endpoint."""


def definitions(directives: Iterable[Directive]) -> tuple[Need, ...]:
    """Return the needs of directives of ``http``, which routes of any virtual host may share."""
    return tuple((DEFINITION, " ".join(item.arguments), item) for item in directives)


class RoutePiece(msgspec.Struct, frozen=True):
    """Part of the configuration of a route: of one feature, of all of them, or of an answer.

    A slot is a place in the locations of the route. NGINX runs directives in the order of its own
    phases: those that ``return``, then limits, then access checks.
    """

    named: tuple[Directive, ...] = ()
    """Variables of the access log, set once at the start of the first location."""
    preflight: tuple[Directive, ...] = ()
    """Answers that need no check. They and the variables that they use precede all others."""
    rejections: tuple[Directive, ...] = ()
    """Checks that ``return``: they hold before any answer."""
    limits: tuple[Directive, ...] = ()
    """Rate limits. NGINX runs them after ``return``, so that an answer of its own follows in
    another location, as for ``login``, ``checks`` and ``snippets``."""
    addresses: tuple[Directive, ...] = ()
    """Access checks by the address of the client: in a location before ``authorization``, so that
    their 403 is none of the server."""
    authorization: tuple[Directive, ...] = ()
    """The check by an authorization server: in a location of its own, after the limits alone."""
    permitted: tuple[Directive, ...] = ()
    """Directives at the start of the location that ``authorization`` leads to."""
    login: tuple[Directive, ...] = ()
    """Directives that handle 401 by another location, so that it must not be a backend's 401."""
    checks: tuple[Directive, ...] = ()
    """Access checks that need no location of their own before a backend."""
    settings: tuple[Directive, ...] = ()
    """Settings of the client's connection."""
    spans: tuple[Directive, ...] = ()
    """Names and attributes of spans, in each location that may be the last."""
    variables: tuple[Directive, ...] = ()
    """Directives that set variables, before others that return or rewrite the path."""
    claim_headers: tuple[tuple[str, str], ...] = ()
    """Names of headers for the backend, with the variables of their values."""
    cookie: str = ""
    """Variable with the cookies for the backend; empty: those of the client."""
    hidden: tuple[str, ...] = ()
    """Headers of the backend that are replaced."""
    added: tuple[Directive, ...] = ()
    """Directives that add response headers for clients."""
    failures: tuple[Directive, ...] = ()
    """Directives that replace NGINX's own responses."""
    snippets: tuple[DirectiveNode, ...] = ()
    """Directives of users, which may be checks or change the response."""
    content: tuple[DirectiveNode, ...] = ()
    """Directives that answer; in a composed piece, all of the first location."""
    needs: tuple[Need, ...] = ()
    """Parts of other files: upstreams, directives of ``http``, relying parties."""
    maps: tuple[Directive, ...] = ()
    """Directives of ``http`` in the file of the virtual host."""
    locations: tuple[Directive, ...] = ()
    """Named locations that it leads to."""
    subrequests: tuple[Directive, ...] = ()
    """Internal locations of mirrors and authorization servers, which it leads to."""
    fixed: tuple[Directive, ...] = ()
    """Locations that are written even if no directive has their name: those with fixed paths, which
    several routes may need, and those whose name contains variables where it is used."""

    @property
    def claims(self) -> list[tuple[str, str]]:
        """Names of headers for the backend, with their values as tokens."""
        return [(name, f'"${{{variable}}}"') for name, variable in self.claim_headers]

    @classmethod
    def joined(cls, pieces: Sequence[RoutePiece]) -> RoutePiece:
        """Return the piece that has the slots of all pieces, each in their order."""
        if len(pieces) == 1:
            return pieces[0]
        slots = zip(*map(msgspec.structs.astuple, pieces), strict=True)
        return cls(*(functools.reduce(operator.add, slot) for slot in slots))


class Answer(msgspec.Struct, frozen=True):
    """Answer to the requests of a route that pass its checks."""

    piece: RoutePiece
    is_early: bool = True
    """True: it returns, so that NGINX would answer before limits and access checks."""
    attempts: Callable[[Sequence[DirectiveNode]], RoutePiece] | None = None
    """Returns the location of the first attempt, and those of the retries, with these directives.
    A backend's 401 leads to a retry. None: there are no retries."""


class TraceContext(msgspec.Struct, frozen=True):
    """Attributes of all spans of a gateway."""

    gateway: str
    """``namespace/name``."""
    attributes: tuple[SpanAttribute, ...] = ()


class LocationTrace(msgspec.Struct, frozen=True):
    """Decision about requests of a route."""

    sampled: str
    """Value of ``otel_trace``."""
    context: str
    """Value of ``otel_trace_context``; empty for the default."""


NOT_TRACED = LocationTrace("off", "")


class ServedRoute(msgspec.Struct, frozen=True):
    """A route as locations. ``destination`` leads to it: a named location or a variable."""

    destination: str
    piece: RoutePiece
    """Its locations, and all that they need. The first one has the content."""
    is_direct: bool = False
    """True: where no choice is left, another location may have its content."""
    trace: LocationTrace = NOT_TRACED


class NginxRouteContext(msgspec.Struct, frozen=True):
    """Context of a route."""

    scope: str
    clusters: _Clusters
    capabilities: NginxCapabilities
    client: ClientSettings = ClientSettings()
    """Client settings that the server already has."""
    removed_headers: tuple[str, ...] = ()
    """Default headers that are not sent to backends."""
    traces: TraceContext | None = None
    """Attributes of all spans; None: no request is traced."""
    conflicts: Mapping[Oidc, str] = {}
    """Relying parties that cannot be served, each with the reason."""
    location: str = ""
    """Named location of the answer; two shares of one backend have different ones."""
    backend: ir.Backend | None = None
    """Backend that answers; None: NGINX answers without one."""
    answering: tuple[ir.Cluster, ...] = ()
    """Clusters of the backend, and of others that share its upstream."""
    upstream: Need | None = None
    """An upstream that several backends share; None: that of the backend's cluster."""
    authorized: Mapping[str, str] = {}
    """Variables that hold request headers, by their names in lower case: those that the check of
    the listener sets. They replace those of the client before the route is chosen."""
    is_checked: bool = False
    """True if the listener checks all requests."""
