"""An Envoy as the protocol sees it: what it asks for, takes, refuses, and when it accepts.

Bodies are text: a cluster is anything; a route configuration, the names of its clusters; a
listener, the name of its route configuration. ``bad`` in front is refused for what it means, while
all else of the response is taken; ``ugly`` is refused before anything of it is looked at.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TypeAlias

from envoy.service.discovery.v3 import discovery_pb2

from gatehouse.dataplane.origin import Origin
from gatehouse.dataplane.xds.resources import (
    CLUSTER_TYPE_URL,
    ENDPOINTS_TYPE_URL,
    LISTENER_TYPE_URL,
    ROUTES_TYPE_URL,
    XdsResource,
)

Ask: TypeAlias = discovery_pb2.DeltaDiscoveryRequest
Reply: TypeAlias = discovery_pb2.DeltaDiscoveryResponse

TYPES = (CLUSTER_TYPE_URL, ENDPOINTS_TYPE_URL, LISTENER_TYPE_URL, ROUTES_TYPE_URL)


def make_resource(type_url: str, name: str, text: str) -> XdsResource:
    return XdsResource.make(type_url, name, text.encode(), origins=(Origin("Object", "", name),))


def rejectable(resource: XdsResource) -> bool:
    return resource.body.startswith((b"bad", b"ugly"))


class Envoy:
    """The state of one Envoy, over any number of streams."""

    def __init__(self) -> None:
        self.has: dict[str, dict[str, tuple[str, str]]] = {type_url: {} for type_url in TYPES}
        """By type and name: version and text."""
        self.orphaned: dict[str, set[str]] = {type_url: set() for type_url in TYPES}
        """By type, names that were taken away and that it uses on all the same: Envoy gives up no
        endpoints and routes while something leads to them. It says nothing of them on its next
        stream."""
        self.outbox: deque[Ask] = deque()
        self.inbox: deque[Reply] = deque()
        self.faults: list[str] = []
        """Moments in which traffic would have been answered 503."""
        self.waits = 0
        """Number of times that waiting for endpoints timed out."""
        self.broken_by_rejection: Callable[[str], bool] = lambda _cluster: False
        self._asked: dict[str, set[str]] = {}
        self._warming: set[str] = set()
        self._active: set[str] = set()
        """Clusters that are or were warm: one that changes is used as it was until it is."""
        self._held: Ask | None = None

    def disconnect(self) -> None:
        """Lose the stream, and what was on its way."""
        self.outbox.clear()
        self.inbox.clear()
        self._warming.clear()
        self._held = None
        self._asked = {}

    def connect(self) -> None:
        """Begin a stream as a client that may have resources from an earlier stream."""
        self.disconnect()
        for type_url in (CLUSTER_TYPE_URL, ENDPOINTS_TYPE_URL, LISTENER_TYPE_URL, ROUTES_TYPE_URL):
            names = self._requested_names(type_url)
            if names or type_url in (CLUSTER_TYPE_URL, LISTENER_TYPE_URL):
                ask = Ask(type_url=type_url, resource_names_subscribe=sorted(names))
                versions = {
                    name: version
                    for name, (version, _) in self.has[type_url].items()
                    if name not in self.orphaned[type_url]
                }
                ask.initial_resource_versions.update(versions)
                self.outbox.append(ask)
                self._asked[type_url] = names
        self.outbox[0].node.user_agent_name = "model"

    def _requested_names(self, type_url: str) -> set[str]:
        if type_url == ENDPOINTS_TYPE_URL:
            return set(self.has[CLUSTER_TYPE_URL])
        if type_url == ROUTES_TYPE_URL:
            return {text.partition("|")[0] for _, text in self.has[LISTENER_TYPE_URL].values()}
        return set()

    def handle(self) -> None:
        """Take in the oldest response."""
        reply = self.inbox.popleft()
        type_url = reply.type_url
        answer = Ask(type_url=type_url, response_nonce=reply.nonce)
        bodies = {resource.name: resource.resource.value.decode() for resource in reply.resources}
        refused = self._rejected(type_url, bodies)
        if refused:
            answer.error_detail.message = refused
        if not any(text.startswith("ugly") for text in bodies.values()):
            self._take(reply)
        elif type_url == ENDPOINTS_TYPE_URL:
            # A cluster whose endpoints are refused is warm: it has none.
            self._warming -= bodies.keys()
        for changed_type in (ENDPOINTS_TYPE_URL, ROUTES_TYPE_URL):
            self._ask(changed_type)
        if type_url == CLUSTER_TYPE_URL and self._warming:
            self._held = answer
        else:
            self.outbox.append(answer)
        self._release()
        self._update_traffic()

    def time_out(self) -> bool:
        """Wait no longer for endpoints that do not come; returns whether any were awaited."""
        waited = bool(self._warming)
        self.waits += waited
        self._warming.clear()
        self._release()
        return waited

    def _release(self) -> None:
        self._active = (self._active | (self.has[CLUSTER_TYPE_URL].keys() - self._warming)) & set(
            self.has[CLUSTER_TYPE_URL]
        )
        if self._held is not None and not self._warming:
            self.outbox.append(self._held)
            self._held = None

    def _rejected(self, type_url: str, bodies: dict[str, str]) -> str:
        if any(text.startswith("ugly") for text in bodies.values()):
            return "something is ugly"
        bad = [name for name, text in bodies.items() if text.startswith("bad")]
        if not bad:
            return ""
        if type_url in (CLUSTER_TYPE_URL, LISTENER_TYPE_URL):
            kind = "cluster" if type_url == CLUSTER_TYPE_URL else "listener"
            return f"Error adding/updating {kind}(s) " + ", ".join(f"{n}: is bad" for n in bad)
        return "one of them is bad"

    def _take(self, reply: Reply) -> None:
        has, by_name = (
            self.has[reply.type_url],
            reply.type_url in (ENDPOINTS_TYPE_URL, ROUTES_TYPE_URL),
        )
        for resource in reply.resources:
            text = resource.resource.value.decode()
            if by_name and resource.name not in self._asked.get(reply.type_url, set()):
                # It was on its way when it was asked for no longer.
                continue
            if not text.startswith("bad"):
                new = has.get(resource.name, ("", ""))[0] != resource.version
                has[resource.name] = (resource.version, text)
                self.orphaned[reply.type_url].discard(resource.name)
                if reply.type_url == CLUSTER_TYPE_URL and new:
                    self._warming.add(resource.name)
            if reply.type_url == ENDPOINTS_TYPE_URL:
                self._warming.discard(resource.name)
        for name in reply.removed_resources:
            if reply.type_url in (CLUSTER_TYPE_URL, LISTENER_TYPE_URL):
                has.pop(name, None)
            elif name in has:
                self.orphaned[reply.type_url].add(name)
            self._warming.discard(name)

    def _ask(self, type_url: str) -> None:
        desired, current = self._requested_names(type_url), self._asked.get(type_url, set())
        if desired != current:
            self.outbox.append(
                Ask(
                    type_url=type_url,
                    resource_names_subscribe=sorted(desired - current),
                    resource_names_unsubscribe=sorted(current - desired),
                )
            )
            self._asked[type_url] = desired
            for name in current - desired:
                self.has[type_url].pop(name, None)
                self.orphaned[type_url].discard(name)

    def _update_traffic(self) -> None:
        for name, (_, text) in self.has[ROUTES_TYPE_URL].items():
            if name not in self._requested_names(ROUTES_TYPE_URL):
                continue
            for target in filter(None, text.partition("|")[0].split(",")):
                if target not in self._active and not self.broken_by_rejection(target):
                    self.faults.append(f"{name} leads to {target}, which is not there")
