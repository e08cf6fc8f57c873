"""What a relay tells Envoy, what it asks of the control plane, and what it answers it. Pure.

It asks for what Envoy asks for, holds what it is given, and accepts only what Envoy has accepted,
so that the control plane learns the truth. An Envoy that is started again is served from what is
held; one that went on while the relay was away is not told anything older than it may have.

What it asks for by itself are descriptions of companions. Of these Envoy hears nothing; they are
accepted when the companions do what is described.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from typing import TypeAlias

import msgspec
from envoy.config.core.v3 import base_pb2
from envoy.service.discovery.v3 import discovery_pb2

from gatehouse.agent.envoy.described import Descriptions
from gatehouse.xds import delta
from gatehouse.xds.conversation import WILDCARDS
from gatehouse.xds.publication import EVERYTHING, Publication
from gatehouse.xds.refusals import Refusal
from gatehouse.xds.resources import COMPANION, LISTENER, Key, Resource, Resources
from gatehouse.xds.subscription import BY_NAME, Subscription

FEATURE = "gatehouse.relay"
"""Said to the control plane beside what Envoy says of itself."""

REASONS_MAX = 100
"""Refused resources whose reasons stand in the text of an answer."""

Ask: TypeAlias = discovery_pb2.DeltaDiscoveryRequest


class Kept(msgspec.Struct, frozen=True):
    """A change of what Envoy took last."""

    new: tuple[Resource, ...] = ()
    gone: tuple[Key, ...] = ()


class _Unanswered(msgspec.Struct):
    """A response of the control plane, until Envoy has said what it makes of it."""

    nonce: str
    names: set[str]
    """Those that Envoy has not answered yet."""
    accepted: set[str] = set()
    refused: dict[str, str] = {}


class Relay:
    """The state of a relay; see the module's docstring."""

    def __init__(self, kept: Resources, companions: Sequence[str] = ()) -> None:
        """Begin with what Envoy and companions took last.

        ``companions``: those that the agent can run, as the control plane is told beside what
        Envoy says of itself; without any no descriptions are asked for.
        """
        self.node: base_pb2.Node | None = None
        """What Envoy says of itself; None: nothing yet."""
        self.doubtful = False
        """Whether Envoy refused what the control plane believes it has, so that it is to be asked
        anew."""
        self.dialogue: delta.Dialogue | None = None
        self.asks: list[Ask] = []
        """What is to be said to the control plane, in order; to be taken away."""
        self.changes: list[Kept] = []
        """What is to be kept, in order; to be taken away."""
        self._good = kept
        self._publication = Publication(complete=False)
        described = kept.by_type.get(COMPANION, {})
        self._descriptions = Descriptions(described.values())
        theirs = [(COMPANION, name) for name in described]
        self._publication.amend(kept.changed(gone=theirs), ())
        self._features = (FEATURE, *companions)
        self._interest: dict[str, set[str]] = {COMPANION: {EVERYTHING}} if companions else {}
        self._introduced: set[str] = set()
        """Types asked for on the present stream to the control plane."""
        self._unanswered: dict[str, _Unanswered] = {}
        self._heard: set[str] = set()
        """Types of which the control plane spoke since this relay began."""
        self._holding = False

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

    def hear(self, response: discovery_pb2.DeltaDiscoveryResponse) -> None:
        """Take in what the control plane says."""
        type_url = response.type_url
        new = [
            Resource(type_url, each.name, each.resource.value, each.version)
            for each in response.resources
        ]
        gone = [(type_url, name) for name in response.removed_resources]
        self._heard.add(type_url)
        self._holding = self._holding and not self._interest.keys() - BY_NAME <= self._heard
        if type_url == COMPANION:
            self._descriptions.hear(response.nonce, new, response.removed_resources)
            return
        keys = [each.key for each in new] + gone
        self._publication.amend(self._publication.current.changed(new, gone), keys)
        self._publication.learn(gone)
        self._publication.forget(each.key for each in new)
        if not keys and type_url not in BY_NAME:
            self._publication.learn([(type_url, EVERYTHING)])
        self._unanswered[type_url] = _Unanswered(response.nonce, {name for _, name in keys})
        self._settle()

    def quiet(self) -> None:
        """Take note that the control plane has had nothing to say for a while: that was all."""
        whole = (
            each for each in self._heard - BY_NAME - {COMPANION} if each not in self._unanswered
        )
        self._publication.learn((each, EVERYTHING) for each in whole)

    # Towards companions

    @property
    def described(self) -> Mapping[str, Resource]:
        """What companions are to do, by name; another object after each change."""
        return self._descriptions.wanted

    def accompanied(self, told: Mapping[str, Resource], refused: Mapping[str, str]) -> None:
        """Take note that companions do what was :attr:`described`, less what they refused."""
        verdict = self._descriptions.judged(told, refused)
        if verdict is None:
            return
        self._keep(verdict.taken, verdict.gone)
        if verdict.nonce:
            self._reply(COMPANION, verdict.nonce, verdict.refused)

    # Towards Envoy

    def opened(self) -> delta.Dialogue:
        """Begin a stream from Envoy; an older one is over."""
        self.dialogue = delta.Dialogue(self._publication)
        self._holding = False
        return self.dialogue

    def closed(self, dialogue: delta.Dialogue) -> None:
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
        if message.initial_resource_versions and not self._heard:
            # It has been served since, perhaps newer things than were kept.
            self._holding = True
        request = delta.read(message)
        self.dialogue.conversation.receive(request)
        state = self._subscription(request.type_url)
        assert state is not None
        self._follow(state, {*request.subscribe, *request.unsubscribe})
        self._settle()

    def next(self) -> bytes | None:
        """Give what is to be said to Envoy now; None: nothing."""
        if self.dialogue is None or self._holding:
            return None
        message = self.dialogue.next()
        self._settle()
        return message

    def impatient(self) -> None:
        """Take note that Envoy does not ask for what it might: it does not want it."""
        if self.dialogue is None:
            return
        conversation = self.dialogue.conversation
        unwanted = conversation.unwanted()
        conversation.impatient()
        if conversation.at_rest and self._heard >= WILDCARDS:
            self._drop(unwanted)
        self._settle()

    @property
    def serving(self) -> bool:
        """Whether Envoy has taken a configuration: listeners, or the news that there are none."""
        state = self._subscription(LISTENER)
        if state is None:
            return False
        none = state.greeted and state.in_flight is None and not state.refused
        return none or any(state.known.values())

    @property
    def held(self) -> int:
        """How many resources are held for Envoy."""
        return len(self._publication.current)

    def _subscription(self, type_url: str) -> Subscription | None:
        if self.dialogue is None:
            return None
        return self.dialogue.conversation.subscription(type_url)

    def _follow(self, state: Subscription, names: set[str]) -> None:
        """Ask for what Envoy asks for, and no longer for what it does not want any more."""
        interest = self._interest.setdefault(state.type_url, set())
        wanted = {name for name in names if name in state.names}
        if state.wildcard:
            wanted.add(EVERYTHING)
        if new := wanted - interest:
            interest |= new
            self._ask(state.type_url, new)
        self._drop((state.type_url, name) for name in names - wanted if not state.covers(name))

    def _drop(self, keys: Iterable[Key]) -> None:
        """Ask no longer for these, and hold them no longer."""
        gone = list(keys)
        left: dict[str, set[str]] = {}
        for type_url, name in gone:
            left.setdefault(type_url, set()).add(name)
        for type_url, names in left.items():
            if asked := names & self._interest.get(type_url, set()):
                self._interest[type_url] -= asked
                self._ask(type_url, (), asked)
        if gone:
            self._publication.amend(self._publication.current.changed(gone=gone), gone)
            self._publication.forget(gone)
            self._keep((), gone)

    def _ask(self, type_url: str, names: Iterable[str], left: Iterable[str] = ()) -> None:
        first = type_url not in self._introduced
        ask = Ask(
            type_url=type_url,
            resource_names_subscribe=sorted(names),
            resource_names_unsubscribe=sorted(left),
        )
        if first and not self._introduced and self.node is not None:
            ask.node.CopyFrom(self.node)
        if first:
            self._introduced.add(type_url)
            good = self._good.by_type.get(type_url, {})
            versions = {name: each.version for name, each in good.items()}
            ask.initial_resource_versions.update(versions)
        self.asks.append(ask)

    def _settle(self) -> None:
        """Answer what Envoy has answered."""
        for type_url, response in list(self._unanswered.items()):
            for name in list(response.names):
                self._judge(type_url, name, response)
            if not response.names:
                del self._unanswered[type_url]
                self._answer(type_url, response)
        self._doubt()

    def _judge(self, type_url: str, name: str, response: _Unanswered) -> None:
        """See what Envoy made of one resource of a response."""
        state = self._subscription(type_url)
        if self.dialogue is None:
            return
        if state is None or not state.covers(name):
            if self.dialogue.conversation.at_rest:
                # It does not want it, and that is no fault.
                response.names.discard(name)
            return
        wanted = self._publication.current.get(type_url, name)
        refused = state.refused.get(name)
        if wanted is None:
            if not state.known.get(name):
                response.names.discard(name)
                response.accepted.add(name)
        elif state.known.get(name) == wanted.version:
            response.names.discard(name)
            response.accepted.add(name)
        elif refused is not None and refused.resource.version == wanted.version:
            response.names.discard(name)
            response.refused[name] = refused.reason

    def _answer(self, type_url: str, response: _Unanswered) -> None:
        new, gone = [], []
        for name in response.accepted:
            held = self._publication.current.get(type_url, name)
            if held is None:
                gone.append((type_url, name))
            else:
                new.append(held)
        self._keep(new, gone)
        self._back([(type_url, name) for name in response.refused])
        self._reply(type_url, response.nonce, response.refused)

    def _reply(self, type_url: str, nonce: str, refused: Mapping[str, str]) -> None:
        ask = Ask(type_url=type_url, response_nonce=nonce)
        if refused:
            ask.error_detail.CopyFrom(delta.status_of(_refusal(refused)))
        self.asks.append(ask)

    def _keep(self, new: Iterable[Resource], gone: Iterable[Key]) -> None:
        change = Kept(tuple(new), tuple(gone))
        if change.new or change.gone:
            self._good = self._good.changed(change.new, change.gone)
            self.changes.append(change)

    def _back(self, keys: list[Key]) -> None:
        """Hold again, of what Envoy refused, what it took last."""
        if not keys:
            return
        good = {key: self._good.get(*key) for key in keys}
        new = [each for each in good.values() if each is not None]
        gone = [key for key, each in good.items() if each is None]
        self._publication.amend(self._publication.current.changed(new, gone), keys)

    def _doubt(self) -> None:
        """Let go of what Envoy refuses though it took it before: another Envoy may."""
        if self.dialogue is None:
            return
        stale = [
            each.resource.key
            for each in self.dialogue.conversation.refused()
            if each.resource.name not in self._unresolved(each.resource.type_url)
            and self._good.get(*each.resource.key) == each.resource
        ]
        if stale:
            self._keep((), stale)
            self._back(stale)
            self.doubtful = True

    def _unresolved(self, type_url: str) -> Set[str]:
        response = self._unanswered.get(type_url)
        return response.names if response else frozenset()


def _refusal(reasons: Mapping[str, str]) -> Refusal:
    told = [f"{name}: {reason}" for name, reason in sorted(reasons.items())]
    return Refusal("\n".join(told[:REASONS_MAX]), reasons)
