"""Verdicts of a quarantine: what is left out of a Gateway's configuration, and why. No I/O.

A verdict ends when the object changes or is deleted. Each is tried again after a while, because the
cause may have been something else that has changed or gone.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

import msgspec

from gatehouse.compiler.frontends import gateway_api
from gatehouse.compiler.ir import gateway as ir
from gatehouse.compiler.ir.http import Route
from gatehouse.compiler.ir.unsupported import Suspect, Unsupported
from gatehouse.controller.held_back import is_route, port_part
from gatehouse.controller.quarantined_routes import changed_routes, configured_routes, failing_route
from gatehouse.controller.stored_verdicts import OF_MATCH
from gatehouse.dataplane.origin import Origin, port_of
from gatehouse.incremental.query import Key
from kube_base.runtime.backoff import BackoffPolicy

PORT_RETRY_SECONDS = 10.0
"""Time in seconds after which a port that could not be bound is tried again: the program that
holds it is not seen."""

RETRY = BackoffPolicy(first=60.0, maximum=3600.0)
"""Time in seconds after which another verdict is tried again."""

HURRY_SECONDS = 10.0
"""The longest time after something changed on which a verdict may depend."""

_REFERRED = {
    *gateway_api.CREDENTIAL_KINDS,
    "Service",
    "XBackend",
    "InferencePool",
    *gateway_api.FILTER_KINDS,
}
"""Kinds of objects that others refer to."""

Replacements = tuple[tuple[Route, Route | None], ...]
"""Rejected routes, each with the route that is served in its place."""


class _Attempts(msgspec.Struct):
    """Attempts to use a part again."""

    due: float
    """Time of the next one."""
    count: int = 1
    """Number of rejections."""


class _LeftOut(msgspec.Struct):
    """Everything that is left out, with the reason."""

    routes: dict[Origin, Replacements] = {}
    objects: dict[Origin, gateway_api.RejectedObject] = {}
    credentials: dict[str, tuple[tuple[Origin, ...], str]] = {}
    """By name, the origins and the reason."""
    ports: dict[int, str] = {}
    """Reasons by port."""
    reasons: dict[Origin, str] = {}
    """Reasons about routes."""

    def has(self, part: Suspect) -> bool:
        """Return whether a part is left out."""
        if part.credential:
            return part.credential in self.credentials
        if part == port_part(part.origin.port):
            return part.origin.port in self.ports
        return part.origin in self.routes or part.origin in self.objects

    def origins_of(self, key: Key) -> list[Origin]:
        """Return the origins that an object is, or is in."""
        return [one for one in (*self.routes, *self.objects) if gateway_api.key_of(one) == key]

    def drop(self, origin: Origin) -> None:
        """Forget what is left out of a route or an object."""
        for entries in (self.routes, self.objects, self.reasons):
            entries.pop(origin, None)

    def remove(self, part: Suspect) -> None:
        """Forget what is left out of a part."""
        if part.credential:
            self.credentials.pop(part.credential, None)
        elif part == port_part(part.origin.port):
            self.ports.pop(part.origin.port, None)
        else:
            self.drop(part.origin)

    def over(self, before: _LeftOut) -> _LeftOut:
        """Return what is left out together with that of ``before``."""
        fields = self.__struct_fields__
        return _LeftOut(*(getattr(before, name) | getattr(self, name) for name in fields))


class Verdicts:
    """The verdicts about parts of one Gateway."""

    def __init__(
        self,
        gateway: Key,
        spec_of: Callable[[Key], Any],
        reads: Callable[[Key], bool],
        clock: Callable[[], float],
    ) -> None:
        """``spec_of``, ``reads``: see :class:`~gatehouse.controller.quarantine.Quarantine`."""
        self._gateway, self._spec_of, self._reads, self._clock = gateway, spec_of, reads, clock
        self._now = _LeftOut()
        self._before_retry: _LeftOut | None = None
        """All that was left out before parts are tried again; None while none is."""
        self._attempts: dict[Suspect, _Attempts] = {}

    @property
    def left_out(self) -> tuple[Origin, ...]:
        """Everything that is left out, sorted."""
        ports = (port_of(self._gateway, port) for port in self._now.ports)
        credentials = {
            origin for origins, _ in self._now.credentials.values() for origin in origins
        }
        return tuple(sorted((*self._now.routes, *self._now.objects, *credentials, *ports)))

    @property
    def inputs(self) -> dict[Key, Any]:
        """The inputs of the front end."""
        inputs: dict[Key, Any] = {
            gateway_api.replacement_key(self._gateway, origin): gateway_api.Replacement(routes)
            for origin, routes in self._now.routes.items()
        }
        reported = self._reported
        for origin, rejected in reported.objects.items():
            tried, key = origin not in self._now.objects, gateway_api.key_of(origin)
            inputs[gateway_api.rejected_object_key(self._gateway, key, tried=tried)] = rejected
        for name, (_, reason) in reported.credentials.items():
            tried = name not in self._now.credentials
            key = gateway_api.rejected_credential_key(self._gateway, name, tried=tried)
            inputs[key] = gateway_api.RejectedCredential(name, reason)
        if self._now.ports:
            inputs[gateway_api.rejected_ports_key(self._gateway)] = frozenset(self._now.ports)
        return inputs

    @property
    def findings(self) -> tuple[Unsupported, ...]:
        """Findings about routes and ports. Those about other objects follow from their input."""
        routes = self._reported.routes
        return tuple(
            Unsupported(origin, reason, rejected=True)
            for origin, reason in self.reasons.items()
            if origin.port or origin in routes
        )

    @property
    def reasons(self) -> dict[Origin, str]:
        """The reason of each verdict. It stays until what is tried again is accepted."""
        reported = self._reported
        dropped = {
            origin
            for origin, routes in reported.routes.items()
            if any(new is None for _, new in routes)
        }
        return {
            **{
                origin: f"{OF_MATCH if origin in dropped else ''}{reason}"
                for origin, reason in reported.reasons.items()
            },
            **{port_of(self._gateway, port): reason for port, reason in reported.ports.items()},
            **{origin: rejected.reason for origin, rejected in reported.objects.items()},
            **{origins[0]: reason for origins, reason in reported.credentials.values()},
        }

    @property
    def _reported(self) -> _LeftOut:
        """Everything that is left out, or tried again and not accepted yet."""
        before = self._before_retry
        return self._now if before is None else self._now.over(before)

    @property
    def known(self) -> Collection[Suspect]:
        """All parts with a verdict."""
        return self._attempts.keys()

    @property
    def next_retry(self) -> float | None:
        """Time of the next attempt; None if there is no verdict."""
        return min((entry.due for entry in self._attempts.values()), default=None)

    def leave_out(
        self, part: Suspect, routes: Sequence[Route], gateway: ir.GatewayConfiguration, reason: str
    ) -> bool:
        """Leave a part out. Return False if there is nothing of it, or nothing more to leave out.

        ``routes``: what a rejected configuration has of it; ``gateway``: this configuration.
        """
        origin = part.origin
        if part == port_part(origin.port):
            self._now.ports[origin.port] = reason
        elif part.credential:
            held = (entry for entry in gateway.credentials if entry.name == part.credential)
            self._now.credentials |= {entry.name: (entry.origins, reason) for entry in held}
            if part.credential not in self._now.credentials:
                return False
        elif routes:
            if not self._replace(origin, routes, reason, drop=part.in_match):
                return False
        elif not self._leave_object_out(origin, reason):
            return False
        part = msgspec.structs.replace(part, in_match=False)
        count = self._attempts[part].count + 1 if part in self._attempts else 1
        delay = PORT_RETRY_SECONDS if origin.port and not origin.kind else RETRY.delay(count)
        self._attempts[part] = _Attempts(self._clock() + delay, count)
        return True

    def _leave_object_out(self, origin: Origin, reason: str) -> bool:
        key = gateway_api.key_of(origin)
        spec = self._spec_of(key)
        if spec is None or origin.part:
            return False
        self._now.objects[origin] = gateway_api.RejectedObject(key, spec, reason)
        return True

    def _replace(self, origin: Origin, routes: Sequence[Route], reason: str, *, drop: bool) -> bool:
        """Replace the routes of an origin as they were in a rejected version.

        A route that is replaced already is dropped if its replacement was rejected, too. Return
        whether anything changed.
        """
        known = dict(self._now.routes.get(origin, ()))
        original = {new: old for old, new in known.items() if new is not None}
        replaced: dict[Route, Route | None] = dict(known)
        for route in routes:
            if route in original:
                replaced[original[route]] = None
            elif route not in known:
                replaced[route] = None if drop else failing_route(route)
        if replaced == known:
            return False
        self._now.routes[origin] = tuple(replaced.items())
        self._now.reasons.setdefault(origin, reason)
        return True

    def due(self) -> tuple[Suspect, ...]:
        """Return the parts whose next attempt is due, sorted."""
        now = self._clock()
        parts = (part for part, entry in self._attempts.items() if entry.due <= now)
        return tuple(sorted(parts, key=lambda part: (part.origin, part.credential)))

    def hurry(self, seconds: float = HURRY_SECONDS, origins: Collection[Origin] = ()) -> None:
        """Try verdicts again soon; ``origins``: only these."""
        latest = self._clock() + seconds
        for part, entry in self._attempts.items():
            if not origins or part.origin in origins:
                entry.due = min(entry.due, latest)

    def hurry_objects(self) -> None:
        """Try everything but routes and ports again at once."""
        origins = [part.origin for part in self._attempts if not is_route(part)]
        if origins:
            self.hurry(0.0, origins)

    def suspend(self, parts: Iterable[Suspect]) -> None:
        """Use parts again that are tried. Their count of rejections and their findings stay."""
        self._before_retry = self._now.over(_LeftOut())
        for part in parts:
            self._now.remove(part)
            self._attempts[part].due = self._clock() + RETRY.maximum

    def accept(self, parts: Iterable[Suspect]) -> None:
        """End the verdicts about parts that were tried again and are accepted."""
        if self._before_retry is not None:
            for part in parts:
                self._before_retry.remove(part)
            self._forget_attempts()

    def resume(self) -> None:
        """Leave out again what was tried without a result. It is tried again soon."""
        if self._before_retry is None:
            return
        tried = [part.origin for part in self._attempts if not self._now.has(part)]
        self._now = self._now.over(self._before_retry)
        self.settle()
        if tried:
            self.hurry(0.0, tried)

    def depends_on(self, key: Key) -> bool:
        """Return whether a verdict may depend on an object: another one of the same namespace."""
        return key[0] in _REFERRED and any(
            part.origin.namespace == key[1] for part in self._attempts
        )

    def settle(self) -> None:
        """Forget the attempts of parts that are used again, after they were tried."""
        self._before_retry = None
        self._forget_attempts()

    def _forget_attempts(self) -> None:
        for part in tuple(self._attempts):
            if not any(state.has(part) for state in self._states()):
                del self._attempts[part]

    def _states(self) -> tuple[_LeftOut, ...]:
        before = self._before_retry
        return (self._now,) if before is None else (self._now, before)

    def forget(self, key: Key) -> bool:
        """Process the deletion of an object. Return whether anything was left out of it."""
        before = self._before_retry
        origins = before.origins_of(key) if before is not None else ()
        return self._release({*origins, *self._now.origins_of(key)})

    def release_changed(
        self, before: ir.GatewayConfiguration | None, now: ir.GatewayConfiguration
    ) -> bool:
        """Release what was left out and has changed: it is in the published version again."""
        released = [
            origin
            for origin, rejected in self._now.objects.items()
            if self._spec_of(gateway_api.key_of(origin)) != rejected.spec
        ]
        if reported := self._reported.routes:
            for route in changed_routes(before, now):
                left_out = route.origin in self._now.routes
                # What is tried again is in the published version as it was rejected.
                known = (new if left_out else old for old, new in reported.get(route.origin, ()))
                if route.origin in reported and route not in known:
                    released.append(route.origin)
        keys = {
            n: gateway_api.rejected_credential_key(self._gateway, n) for n in self._now.credentials
        }
        unused = [name for name, key in keys.items() if not self._reads(key)]
        for name in unused:
            for state in self._states():
                state.credentials.pop(name, None)
        return self._release(released) or bool(unused)

    def _release(self, origins: Collection[Origin]) -> bool:
        for origin in origins:
            for state in self._states():
                state.drop(origin)
        if origins:
            self._forget_attempts()
            # It may have been what the others did not work with.
            self.hurry()
        return bool(origins)


def rejected_routes(
    part: Suspect, good: ir.GatewayConfiguration, rejected: ir.GatewayConfiguration
) -> list[Route]:
    """Return the routes of a part that a rejected configuration has and a good one does not."""
    if part.credential or not (part.origin.part or part.origin.port):
        return []
    routes = [route for route in changed_routes(good, rejected) if route.origin == part.origin]
    every = configured_routes(rejected)
    return routes or [route for route in every if route.origin == part.origin]
