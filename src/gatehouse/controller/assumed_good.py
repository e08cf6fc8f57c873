"""Configuration that a new controller assumes to be good: a rejected one without its suspects.

The suspects are objects whose status does not say that they are served. Instances that take trials
do not serve what is tried. So a search on these goes on among everything, in three scopes:

- policies, filters and parameters, and the credentials of these;
- routes without any of these, and the credentials of their backends;
- hostnames without routes: their certificates, and the CA certificates that verify clients.

A hostname needs its certificate, and a route the credentials of its backends. So a scope has the
credentials that its objects add to the configuration, and not these objects are left out because of
a rejected one. No I/O.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import combinations

import msgspec

from gatehouse.compiler.frontends import gateway_api
from gatehouse.compiler.ir import gateway as ir
from gatehouse.compiler.ir.unsupported import Suspect
from gatehouse.controller.held_back import changed_parts, is_route
from gatehouse.controller.reduced_gateways import (
    bare_gateway,
    empty_gateway,
    gateway_without_credentials,
    gateway_without_objects,
    gateway_without_routes,
)
from gatehouse.controller.stored_verdicts import StatusHistory
from gatehouse.dataplane.origin import Origin
from gatehouse.incremental.query import Key

MAX_FEW = 8
"""Maximum number of objects and credentials of which few are tried without trials."""

MAX_TOGETHER = 2
"""Maximum number of these that are tried together."""

_View = Callable[[ir.GatewayConfiguration], ir.GatewayConfiguration]
_History = Callable[[Key], StatusHistory]
_Suspected = Callable[[Origin], bool]


class SearchScope(msgspec.Struct, frozen=True):
    """Objects among which a search looks for the cause of a rejection."""

    good: ir.GatewayConfiguration
    """A configuration that is known, or assumed, to be good."""
    parts: tuple[Suspect, ...]
    """Parts that it lacks."""
    view: _View = lambda gateway: gateway
    """Returns the configuration that has all parts."""
    trial: bool = False
    """True if no instance that serves may serve the steps."""
    precise: bool = True
    """False if a part may be left out although another one is the cause."""


def assumed_scopes(
    rejected: ir.GatewayConfiguration, history: _History, *, serving: bool, trials: bool
) -> Iterator[SearchScope]:
    """Yield where the cause of a rejection may be, the most suspect objects first.

    ``serving``: an instance serves a configuration. Then objects that it serves as they are have no
    part in a search, since it would serve less meanwhile. ``trials``: an instance takes trials,
    for which this does not matter. They come first.
    """
    if trials:
        scopes = (*_suspect_scopes(rejected, history), *_complete_scopes(rejected))
        yield from (msgspec.structs.replace(scope, trial=True) for scope in scopes)
    yield from _suspect_scopes(rejected, history)
    if not serving:
        yield from _complete_scopes(rejected)


def _suspect_scopes(rejected: ir.GatewayConfiguration, history: _History) -> Iterator[SearchScope]:
    """Yield the scopes of objects whose status does not say that they are served."""

    def suspects(limit: StatusHistory) -> _Suspected:
        return lambda origin: history(gateway_api.key_of(origin.whole)) <= limit

    limits = (StatusHistory.REJECTED, StatusHistory.CHANGED)
    yield from _distinct_scopes(rejected, [suspects(limit) for limit in limits], history)


def small_scopes(
    rejected: ir.GatewayConfiguration, parts: Sequence[Suspect], history: _History
) -> Iterator[SearchScope]:
    """Yield the scopes of each of the first objects or credentials alone, then of each two.

    Instances serve an accepted step. It is the first one without the causes, so that all of it are
    causes.
    """
    for size in range(1, MAX_TOGETHER + 1):
        for group in combinations(parts[:MAX_FEW], size):
            scopes = (named_scope(rejected, group, history, drops=drops) for drops in (False, True))
            for scope in _distinct(rejected, scopes):
                yield msgspec.structs.replace(scope, precise=False)


def _distinct_scopes(
    rejected: ir.GatewayConfiguration, suspected: Sequence[_Suspected], history: _History
) -> Iterator[SearchScope]:
    """Yield the scopes of several sets of objects. The last ones lack routes that fail in the first
    ones: a match may itself be the cause, and then no answer can be given."""
    scopes = (
        _scope_of(rejected, suspects, history, drops=drops)
        for drops in (False, True)
        for suspects in suspected
    )
    return _distinct(rejected, scopes)


def _distinct(
    rejected: ir.GatewayConfiguration, scopes: Iterable[SearchScope]
) -> Iterator[SearchScope]:
    """Yield the scopes whose configurations differ from the rejected one and from each other."""
    tried = [rejected]
    for scope in scopes:
        if scope.good not in tried:
            yield scope
        tried.append(scope.good)


def credential_scopes(
    rejected: ir.GatewayConfiguration, named: Iterable[Suspect], history: _History, *, alone: bool
) -> Iterator[SearchScope]:
    """Yield the scopes of the credentials that a proxy names, which are all together.

    ``alone``: before that, each alone and each two, since instances serve an accepted step.
    """
    credentials = tuple(part for part in named if part.credential)
    if alone and len(credentials) > 1:
        yield from small_scopes(rejected, credentials, history)
    yield named_scope(rejected, credentials, history)


def named_scope(
    rejected: ir.GatewayConfiguration,
    named: Iterable[Suspect],
    history: _History,
    *,
    drops: bool = False,
) -> SearchScope:
    """Return the scope of the objects and credentials that a proxy names. It has no ports.

    ``drops``: routes of HTTP are absent, in place of failing.
    """
    parts = tuple(part for part in named if part.origin.kind)
    objects = {part.origin.whole for part in parts if not part.credential}
    credentials = tuple(part for part in parts if part.credential)
    scope = _scope_of(rejected, lambda origin: origin.whole in objects, history, drops=drops)
    if not credentials:
        return scope
    good = gateway_without_credentials(scope.good, credentials, _is_new(history))
    both = tuple(dict.fromkeys((*scope.parts, *credentials)))
    return SearchScope(good, both, precise=False)


def _scope_of(
    rejected: ir.GatewayConfiguration,
    suspects: _Suspected,
    history: _History,
    *,
    drops: bool = False,
) -> SearchScope:
    good = gateway_without_objects(rejected, suspects, _is_new(history), drops=drops)
    parts = all_parts(good, rejected)
    return SearchScope(
        good, tuple(part for part in parts if part.credential or suspects(part.origin))
    )


def _is_new(history: _History) -> _Suspected:
    return lambda origin: history(gateway_api.key_of(origin.whole)) is StatusHistory.NEW


def _complete_scopes(rejected: ir.GatewayConfiguration) -> Iterator[SearchScope]:
    """Yield the scopes of everything that is no route, of all routes, and of all hostnames."""
    bare, hostnames = bare_gateway(rejected), gateway_without_routes(rejected)
    empty = empty_gateway(rejected)
    credentials = tuple(part for part in all_parts(empty, hostnames) if part.credential)
    objects = tuple(part for part in all_parts(bare, rejected) if not is_route(part))
    yield SearchScope(bare, objects, precise=False)
    good = hostnames if credentials else empty
    parts = tuple(part for part in all_parts(good, bare) if part.credential or is_route(part))
    yield SearchScope(good, parts, view=bare_gateway, precise=False)
    yield SearchScope(empty, credentials, view=gateway_without_routes)


def all_parts(good: ir.GatewayConfiguration, new: ir.GatewayConfiguration) -> tuple[Suspect, ...]:
    """Return the parts because of which two configurations differ, whether they changed or not."""
    return changed_parts(good, new, lambda _: True)
