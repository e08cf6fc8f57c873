"""Comparison of what Envoy confirmed with what its admin interface shows.

Resources of rejected responses, and those of an Envoy that connects again, are compared soon. The
others are compared at random. A query names a limited number of resources, and all but scopes are
shown without their content. Envoy's main thread answers; its workers are not involved, and the
admin interface does not show what each of them has. Endpoints have no versions there: the hosts of
active clusters are compared with the accepted assignment. The version of a listener does not change
with its filter chains: if it proves nothing, the content is compared.
"""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any

import structlog

from gatehouse.agent.envoy.admin import AdminClient, exact_names
from gatehouse.agent.envoy.relay import Relay
from gatehouse.agent.envoy.served_endpoints import confirmed_endpoints, dumped_endpoints
from gatehouse.agent.envoy.served_listeners import ServedListeners
from gatehouse.dataplane.xds.delta import DeltaStream
from gatehouse.dataplane.xds.distinct_scopes import SCOPE_METADATA
from gatehouse.dataplane.xds.resources import (
    CLUSTER_TYPE_URL,
    ENDPOINTS_TYPE_URL,
    LISTENER_TYPE_URL,
    SCOPE_TYPE_URL,
    SECRET_TYPE_URL,
    ResourceKey,
)
from gatehouse.dataplane.xds.subscription import Subscription

log = structlog.get_logger("gatehouse.agent")

DOUBT_SECONDS = 5.0
"""Interval in seconds between two comparisons of resources in doubt."""

RANDOM_SECONDS = (180.0, 420.0)
"""Minimum and maximum interval in seconds between two comparisons at random."""

_MAX_NAMES = 100
"""Maximum number of resources of a type in one query."""

_MAX_BYTES = 1 << 20
"""Maximum size of the resources of a type in one query, unless there is one resource only."""

_SHOWN_FACTOR = {ENDPOINTS_TYPE_URL: 12}
"""Factor by which the text that Envoy shows is larger than the resource, by type."""

_MAX_REPORTED = 3
"""Maximum number of resources that a report names."""

_QUERIES: Mapping[str, tuple[str, ...]] = {
    CLUSTER_TYPE_URL: (
        "resource=dynamic_active_clusters&mask=version_info,cluster.name",
        "resource=dynamic_warming_clusters&mask=version_info,cluster.name",
    ),
    LISTENER_TYPE_URL: (
        "resource=dynamic_listeners&mask=name,active_state.version_info,warming_state.version_info,"
        "active_state.last_updated,warming_state.last_updated",
    ),
    SECRET_TYPE_URL: ("resource=dynamic_active_secrets&mask=name,version_info",),
    SCOPE_TYPE_URL: ("resource=dynamic_scoped_route_configs",),
    ENDPOINTS_TYPE_URL: ("include_eds&resource=dynamic_endpoint_configs",),
}
"""Queries of each type that is compared."""

_Versions = dict[str, set[str]]
"""Versions that Envoy shows, by name: of a cluster or listener, also of the one that gets warm."""


class ServedCheck:
    """Compares, repairs and reports."""

    def __init__(
        self,
        admin: AdminClient,
        relay: Relay,
        wake: Callable[[], None],
        on_change: Callable[[], None],
    ) -> None:
        """``wake`` is called when there is something to send to Envoy again, and ``on_change`` when
        :attr:`problem` has changed."""
        self._admin, self._relay, self._wake, self._on_change = admin, relay, wake, on_change
        self._listeners = ServedListeners(
            admin, lambda name: relay.cache.accepted.get(LISTENER_TYPE_URL, name)
        )
        self._stream: DeltaStream | None = None
        self._next_random = 0.0
        self._reported: set[ResourceKey] = set()
        """Resources that differed when they were last compared."""
        self.problem = ""
        """The present difference; empty if there is none."""
        self.mismatches = 0
        """Number of resources that differed so far."""

    async def run(self) -> None:
        """Compare until cancelled."""
        self._plan()
        while True:
            await asyncio.sleep(DOUBT_SECONDS)
            at_random = time.monotonic() >= self._next_random
            if at_random:
                self._plan()
            await self.check(at_random=at_random)

    async def check(self, *, at_random: bool) -> None:
        """Compare resources in doubt, and others ``at_random``, if Envoy has no open response."""
        stream = self._relay.stream
        if stream is None or not stream.conversation.is_idle:
            return
        states = {kind: state for kind in _QUERIES if (state := self._subscription(kind))}
        if stream is not self._stream:
            self._stream = stream
            self._listeners.forget()
            for state in states.values():
                state.doubted.update(state.client_versions)
        try:
            for state in states.values():
                await self._compare(stream, state, _sample(state) if at_random else [])
        except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
            log.warning("resources of envoy not compared", error=str(error))

    async def _compare(self, stream: DeltaStream, state: Subscription, more: list[str]) -> None:
        names = self._batch(state.type_url, [*state.doubted, *more])
        if not names:
            return
        expected = {name: self._expected(state, name) for name in names}
        versions = await self._query(state.type_url, names)
        if state.type_url == LISTENER_TYPE_URL:
            left = await self._listeners.compare(expected, versions)
            names = [name for name in names if name not in left]
            state.doubted |= left
        if self._relay.stream is not stream:
            return
        state.doubted.difference_update(names)
        # The others have changed meanwhile.
        compared = {
            name
            for name in names
            if state.certain(name) and self._expected(state, name) == expected[name]
        }
        if state.type_url == ENDPOINTS_TYPE_URL:
            # Those of other clusters are not shown; the clusters are compared themselves.
            compared = {name for name in compared if name in versions and expected[name]}
        if state.type_url == SECRET_TYPE_URL:
            # Envoy keeps a removed one while a draining listener has it.
            compared = {name for name in compared if expected[name]}
        differing = {name for name in compared if expected[name] not in versions.get(name, {""})}
        state.doubted.update(differing, (set(names) - compared) & state.uncertain)
        self._finish(state, compared, differing)

    def _finish(self, state: Subscription, compared: set[str], differing: set[str]) -> None:
        """Repair and report what differs."""
        self.mismatches += len(differing)
        if differing:
            state.uncertain |= differing
            state.mark(differing)
            self._relay.cache.reopen(state.type_url, differing, state.client_versions)
            self._wake()
            log.error(
                "envoy has other resources than confirmed",
                number=len(differing),
                names=sorted(differing)[:_MAX_REPORTED],
            )
        keys = {(state.type_url, name) for name in compared}
        reported = (self._reported - keys) | {(state.type_url, name) for name in differing}
        if reported != self._reported:
            self._reported = reported
            names = [f"{kind.rpartition('.')[2]} {name}" for kind, name in sorted(reported)]
            listed = ", ".join(names[:_MAX_REPORTED])
            more = f" and {len(names) - _MAX_REPORTED} more" if len(names) > _MAX_REPORTED else ""
            self.problem = f"it has other versions than confirmed: {listed}{more}" if names else ""
            self._on_change()

    def _subscription(self, type_url: str) -> Subscription | None:
        stream = self._relay.stream
        return stream.conversation.subscription(type_url) if stream is not None else None

    def _plan(self) -> None:
        self._next_random = time.monotonic() + random.uniform(*RANDOM_SECONDS)  # noqa: S311 -- no secret

    def _expected(self, state: Subscription, name: str) -> str:
        """Return the version that Envoy has confirmed of a resource; empty if it has none."""
        version = state.client_versions.get(name, "")
        if state.type_url == ENDPOINTS_TYPE_URL:
            accepted = self._relay.cache.accepted.get(state.type_url, name)
            known = accepted is not None and accepted.version == version
            return confirmed_endpoints(accepted.body) if accepted is not None and known else ""
        assert self._relay.stream is not None
        response = self._relay.stream.conversation.scopes.sent.get(name, "")
        return f"{version} {response}" if version and response else version

    def _batch(self, type_url: str, candidates: list[str]) -> list[str]:
        """Return the first candidates, in number and size limited."""
        names: list[str] = []
        size, factor = 0, _SHOWN_FACTOR.get(type_url, 1)
        for name in dict.fromkeys(candidates):
            held = self._relay.cache.get(type_url, name)
            size += len(name) + factor * (len(held.body) if held is not None else 0)
            if names and (size > _MAX_BYTES or len(names) >= _MAX_NAMES):
                break
            names.append(name)
        return names

    async def _query(self, type_url: str, names: list[str]) -> _Versions:
        """Return what Envoy shows of these resources. Raises OSError, or others for odd replies."""
        result: _Versions = defaultdict(set)
        for query in _QUERIES[type_url]:
            path = f"/config_dump?{query}&name_regex={exact_names(names)}"
            status, text = await self._admin.get(path)
            if status != 200:
                raise OSError(f"status {status}: {text[:200].strip()}")
            for entry in json.loads(text).get("configs", ()):
                _add_versions(entry, result)
        return result


def _sample(state: Subscription) -> list[str]:
    names = list(state.client_versions)
    return random.sample(names, min(len(names), _MAX_NAMES))


def _add_versions(entry: Mapping[str, Any], result: _Versions) -> None:
    """Add what one entry of a configuration dump shows."""
    if "scoped_route_configs" in entry:
        for scope in entry["scoped_route_configs"]:
            metadata = scope["route_configuration"].get("metadata", {}).get("filter_metadata", {})
            copy = metadata.get(SCOPE_METADATA, {})
            # The response matters for scopes that the agent has sent on this stream.
            version = copy.get("version", "")
            result[scope["name"]] |= {version, f"{version} {copy.get('response', '')}"}
        return
    if "endpoint_config" in entry:
        name, hosts = dumped_endpoints(entry["endpoint_config"])
        result[name].add(hosts)
        return
    name = entry.get("name") or entry.get("cluster", {}).get("name", "")
    for state in (entry, entry.get("active_state", {}), entry.get("warming_state", {})):
        if version := state.get("version_info"):
            result[name] |= {version, f"{version} {state.get('last_updated', '')}"}
