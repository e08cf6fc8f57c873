"""What a relay tells Envoy, what it asks of the control plane, and what it answers it. Pure.

It asks for what Envoy asks for, holds what it is given, and accepts only what Envoy has accepted,
so that the control plane learns the truth. An Envoy that is started again is served from what is
held; one that went on while the relay was away is not told anything older than it may have.

What it asks for by itself are descriptions of companions. Of these Envoy hears nothing; they are
accepted when the companions do what is described.

- What Envoy has taken is kept whichever stream brought it
  (:mod:`~gatehouse.agent.envoy.resource_cache`).
- Who begins to talk to the control plane says every name that is held or that Envoy may have. It
  says a version only where Envoy took it; so of all else the control plane speaks anew, and a name
  that is gone is said to be gone rather than forgotten.
- A response is answered when Envoy has taken or refused all of it, or does not want the rest.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

import msgspec
from envoy.config.core.v3 import base_pb2
from envoy.service.discovery.v3 import discovery_pb2

from gatehouse.agent.envoy.resource_cache import AcceptedChange, ResourceCache
from gatehouse.agent.envoy.sidecar_resources import SidecarResources
from gatehouse.dataplane import features
from gatehouse.dataplane.xds import delta
from gatehouse.dataplane.xds.ads_session import WILDCARDS
from gatehouse.dataplane.xds.nacks import Nack
from gatehouse.dataplane.xds.resources import LISTENER, SIDECAR_CONFIG, Key, Resource, ResourceSet
from gatehouse.dataplane.xds.snapshot_cache import WILDCARD
from gatehouse.dataplane.xds.subscription import InFlight, Subscription

"""Said to the control plane beside what Envoy says of itself."""

REASONS_MAX = 100
"""Refused resources whose reasons stand in the text of an answer."""

DeltaRequest: TypeAlias = discovery_pb2.DeltaDiscoveryRequest


class _Unanswered(msgspec.Struct):
    """A response of the control plane, until Envoy has said what it makes of it."""

    nonce: str
    names: set[str]
    refused: dict[str, str] = {}
    """Reasons by name, as far as Envoy has said."""


class Relay:
    """The state of a relay; see the module's docstring."""

    def __init__(self, kept: ResourceSet, companions: Sequence[str] = ()) -> None:
        """Begin with what Envoy and companions took last.

        ``companions``: those that the agent can run, as the control plane is told beside what
        Envoy says of itself; without any no descriptions are asked for.
        """
        self.node: base_pb2.Node | None = None
        """What Envoy says of itself; None: nothing yet."""
        self.doubtful = False
        """Whether the control plane believes that Envoy has what it has not, so that it is to be
        asked anew."""
        self.dialogue: delta.DeltaStream | None = None
        self.asks: list[DeltaRequest] = []
        """What is to be said to the control plane, in order; to be taken away."""
        described = kept.by_type.get(SIDECAR_CONFIG, {})
        self._descriptions = SidecarResources(described.values())
        theirs = [(SIDECAR_CONFIG, name) for name in described]
        self._holdings = ResourceCache(kept, kept.changed(gone=theirs))
        self._features = (features.RELAY, *companions)
        self._interest: dict[str, set[str]] = {SIDECAR_CONFIG: {WILDCARD}} if companions else {}
        self._introduced: set[str] = set()
        """Types asked for on the present stream to the control plane."""
        self._unanswered: dict[str, _Unanswered] = {}
        self._seasoned = False
        """Whether the Envoy of the present stream had something before."""
        self._unwanted: set[Key] = set()
        """What it did not ask for in time, until it is certain that it is not going to."""

    # Towards the control plane

    def connected(self) -> None:
        """Begin a stream to the control plane: ask for all that Envoy asked for."""
        assert self.node is not None
        self.doubtful = False
        self.asks.clear()
        self._introduced.clear()
        self._unanswered.clear()
        self._descriptions.forget_stream()
        for type_url, names in self._interest.items():
            self._ask(type_url, names)

    def on_message(self, response: discovery_pb2.DeltaDiscoveryResponse) -> None:
        """Take in what the control plane says."""
        type_url = response.type_url
        asked = self._interest.get(type_url, set())
        whole = WILDCARD in asked
        new = [
            Resource(type_url, each.name, each.resource.value, each.version)
            for each in response.resources
            # What was asked for no longer may have been on its way.
            if whole or each.name in asked
        ]
        gone = [name for name in response.removed_resources if whole or name in asked]
        if type_url == SIDECAR_CONFIG:
            self._descriptions.on_response(response.nonce, new, gone)
            return
        self._holdings.on_response(type_url, new, gone)
        names = {each.name for each in new}.union(gone)
        self._unanswered[type_url] = _Unanswered(response.nonce, names)
        self._settle()

    # Towards companions

    @property
    def described(self) -> Mapping[str, Resource]:
        """What companions are to do, by name; another object after each change."""
        return self._descriptions.wanted

    def on_sidecar_result(self, told: Mapping[str, Resource], refused: Mapping[str, str]) -> None:
        """Take note that companions do what was :attr:`described`, less what they refused."""
        verdict = self._descriptions.on_result(told, refused)
        if verdict is None:
            return
        self._holdings.store_accepted(verdict.taken, verdict.gone)
        if verdict.nonce:
            self._answer(SIDECAR_CONFIG, verdict.nonce, verdict.refused)

    # Towards Envoy

    def opened(self) -> delta.DeltaStream:
        """Begin a stream from Envoy; an older one is over."""
        self.dialogue = delta.DeltaStream(self._holdings.publication)
        self._seasoned = False
        self._unwanted.clear()
        return self.dialogue

    def closed(self, dialogue: delta.DeltaStream) -> None:
        """Take note that a stream from Envoy ended."""
        if self.dialogue is dialogue:
            self.dialogue = None

    def receive(self, message: discovery_pb2.DeltaDiscoveryRequest) -> None:
        """Take in what Envoy says on its stream."""
        assert self.dialogue is not None
        if message.HasField("node"):
            self.node = base_pb2.Node()
            self.node.CopyFrom(message.node)
            self.node.client_features.extend(self._features)
        request = delta.read(message)
        before = self._subscription(request.type_url)
        told = before.in_flight if before else None
        if before is None:
            self._compare(request.type_url, request.versions)
        self.dialogue.conversation.receive(request)
        state = self._subscription(request.type_url)
        assert state is not None
        if told is not None and told is not state.in_flight:
            self._accept(state, told)
        self._follow(state, {*request.subscribe, *request.unsubscribe})
        self._settle()

    def next(self) -> bytes | None:
        """Give what is to be said to Envoy now; None: nothing."""
        if self.dialogue is None:
            return None
        message = self.dialogue.next()
        self._settle()
        return message

    def on_deadline(self) -> None:
        """Take note that Envoy does not ask for what it might: it does not want it."""
        if self.dialogue is None:
            return
        self._unwanted.update(self.dialogue.conversation.unsubscribed())
        self.dialogue.conversation.on_deadline()
        self._settle()

    @property
    def serving(self) -> bool:
        """Whether Envoy has taken a configuration: listeners, or the news that there are none."""
        state = self._subscription(LISTENER)
        if state is None:
            return False
        none = state.sent_once and state.in_flight is None and not state.refused
        return none or any(state.known.values())

    @property
    def held(self) -> int:
        """How many resources are held for Envoy."""
        return len(self._holdings.publication.current)

    # Towards the disk

    @property
    def changed(self) -> bool:
        """Whether there is something to keep."""
        return bool(self._holdings.changes)

    def changes(self) -> list[AcceptedChange]:
        """Give what is to be kept, in order, once."""
        changes, self._holdings.changes = self._holdings.changes, []
        return changes

    def _subscription(self, type_url: str) -> Subscription | None:
        if self.dialogue is None:
            return None
        return self.dialogue.conversation.subscription(type_url)

    def _compare(self, type_url: str, has: Mapping[str, str]) -> None:
        """Look at what Envoy says it has of a type, before it is told anything of it."""
        if has and not self._seasoned:
            self._seasoned = True
            self._holdings.invalidate()
        differs = self._holdings.restore_matching(type_url, has if self._seasoned else None)
        if differs and type_url in self._introduced:
            self.doubtful = True

    def _accept(self, state: Subscription, told: InFlight) -> None:
        """Keep what Envoy has taken of what it was told, even if something newer is held by now."""
        self._holdings.store_accepted(
            [each for each in told.resources if state.known.get(each.name) == each.version],
            [(state.type_url, name) for name in told.removed if not state.known.get(name)],
        )

    def _follow(self, state: Subscription, names: set[str]) -> None:
        """Ask for what Envoy asks for, and no longer for what it does not want any more."""
        interest = self._interest.setdefault(state.type_url, set())
        wanted = {name for name in names if name in state.names}
        if state.wildcard:
            wanted.add(WILDCARD)
        if new := wanted - interest:
            interest |= new
            self._ask(state.type_url, new)
        self._drop((state.type_url, name) for name in names - wanted if not state.matches(name))

    def _drop(self, keys: Iterable[Key]) -> None:
        """Ask no longer for these, and hold them no longer."""
        left: dict[str, set[str]] = {}
        for type_url, name in keys:
            left.setdefault(type_url, set()).add(name)
        for type_url, names in left.items():
            interest = self._interest.get(type_url, set())
            if asked := names & interest:
                interest -= asked
                self._ask(type_url, (), asked)
            if WILDCARD not in interest:
                self._holdings.drop([(type_url, name) for name in names])

    def _ask(self, type_url: str, names: Iterable[str], left: Iterable[str] = ()) -> None:
        ask = DeltaRequest(
            type_url=type_url,
            resource_names_subscribe=sorted(names),
            resource_names_unsubscribe=sorted(left),
        )
        if not self._introduced and self.node is not None:
            ask.node.CopyFrom(self.node)
        if type_url not in self._introduced:
            self._introduced.add(type_url)
            ask.initial_resource_versions.update(self._versions(type_url))
        self.asks.append(ask)

    def _versions(self, type_url: str) -> Mapping[str, str]:
        if type_url == SIDECAR_CONFIG:
            return self._descriptions.versions()
        state = self._subscription(type_url)
        has = [name for name, version in state.known.items() if version] if state else ()
        return self._holdings.versions(type_url, self._interest[type_url], has)

    def _settle(self) -> None:
        """Keep what Envoy has taken, let go of what it has refused, and answer what it answered."""
        for type_url in list(self._holdings.open):
            pending = self._judge(type_url)
            response = self._unanswered.get(type_url)
            if response is not None and response.names.isdisjoint(pending):
                del self._unanswered[type_url]
                self._answer(type_url, response.nonce, response.refused)
        self._unsubscribe()
        self._doubt()

    def _judge(self, type_url: str) -> set[str]:
        """See what Envoy made of the open names of a type; give those on which it has the word."""
        if self.dialogue is None:
            return set(self._holdings.open[type_url])
        state, at_rest = self._subscription(type_url), self.dialogue.conversation.is_idle
        pending: set[str] = set()
        agreed: list[Key] = []
        refused: dict[str, str] = {}
        for name in self._holdings.open[type_url]:
            held = self._holdings.held(type_url, name)
            if state is None or not state.matches(name):
                # What it does not want when it has all else, it need not take.
                if not at_rest:
                    pending.add(name)
                elif held is None and not self._holdings.unknown(type_url, name):
                    agreed.append((type_url, name))
            elif self._has(state, name, held):
                agreed.append((type_url, name))
            elif reason := _reason(state, held):
                refused[name] = reason
            else:
                pending.add(name)
        self._holdings.on_ack(agreed)
        if state is not None and refused:
            self._refuse(state, refused)
        return pending

    def _refuse(self, state: Subscription, reasons: Mapping[str, str]) -> None:
        has = {(state.type_url, name): state.known.get(name, "") for name in reasons}
        self._holdings.on_nack(has)
        if response := self._unanswered.get(state.type_url):
            named = {name: reason for name, reason in reasons.items() if name in response.names}
            response.refused.update(named)

    def _answer(self, type_url: str, nonce: str, refused: Mapping[str, str]) -> None:
        ask = DeltaRequest(type_url=type_url, response_nonce=nonce)
        if refused:
            ask.error_detail.CopyFrom(delta.status_of(_refusal(refused)))
        self.asks.append(ask)

    def _has(self, state: Subscription, name: str, held: Resource | None) -> bool:
        """Whether Envoy has what is held of a name, which may be nothing."""
        if held is not None:
            return state.known.get(name) == held.version
        unknown = self._holdings.unknown(state.type_url, name)
        return not unknown and not state.known.get(name) and state.settled(name)

    def _unsubscribe(self) -> None:
        """Let go of what Envoy does not want, once it has all that it might want it for."""
        if self.dialogue is None or not self._unwanted:
            return
        conversation = self.dialogue.conversation
        if conversation.is_idle and self._holdings.heard >= WILDCARDS:
            unwanted, self._unwanted = self._unwanted, set()
            states = {each: self._subscription(each) for each, _ in unwanted}
            self._drop(
                (type_url, name)
                for type_url, name in unwanted
                if (state := states[type_url]) is None or not state.matches(name)
            )

    def _doubt(self) -> None:
        """Let go of what Envoy refuses though it took it before: another Envoy may."""
        if self.dialogue is None:
            return
        stale = [
            each.resource.key
            for each in self.dialogue.conversation.refused()
            if each.resource.name not in self._holdings.open[each.resource.type_url]
            and self._holdings.good.get(*each.resource.key) == each.resource
        ]
        if stale:
            self._holdings.on_nack(dict.fromkeys(stale, ""))
            self.doubtful = True


def _reason(state: Subscription, held: Resource | None) -> str:
    """Why Envoy does not take what is held; empty: it did not say so."""
    refused = state.refused.get(held.name) if held else None
    if held is None or refused is None or refused.resource.version != held.version:
        return ""
    return refused.reason or "no reason given"


def _refusal(reasons: Mapping[str, str]) -> Nack:
    told = [f"{name}: {reason}" for name, reason in sorted(reasons.items())]
    return Nack("\n".join(told[:REASONS_MAX]), reasons)
