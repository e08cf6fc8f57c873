"""Sidecar configurations over ADS: sent before dependents, stored, and rejected by name."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fakes.envoy_model import make_resource
from fakes.envoy_worlds import worlds
from fakes.relay_chain import MOVES, Chain
from gatehouse.dataplane.origin import Origin
from gatehouse.dataplane.xds import sidecar_configs
from gatehouse.dataplane.xds.resources import (
    CLUSTER,
    LISTENER,
    SIDECAR_CONFIG,
    Resource,
    ResourceSet,
)


class SidecarChain(Chain):
    """Chain with sidecars beside Envoy, which reject ``bad`` configurations."""

    companions = ("gatehouse.model",)

    def start_relay(self) -> None:
        super().start_relay()
        self.does: dict[str, Resource] = {}
        self.seen: object = None

    def accompany(self) -> bool:
        described = self.relay.sidecar_configs
        if described is self.seen:
            return False
        bad = [name for name, each in described.items() if each.body.startswith(b"bad")]
        self.relay.on_sidecar_result(described, dict.fromkeys(bad, "it is bad"))
        # What was taken before goes on in the place of what was refused.
        self.seen = self.relay.sidecar_configs
        self.does = dict(self.relay.sidecar_configs)
        return True

    def step(self) -> bool:
        return super().step() or self.accompany()


def described(name: str, text: str) -> Resource:
    return make_resource(SIDECAR_CONFIG, f"model/{name}", text)


@st.composite
def worlds_with_sidecars(draw: st.DrawFn) -> ResourceSet:
    texts = st.sampled_from(["one", "two", "bad"])
    result = draw(st.dictionaries(st.sampled_from(["p", "q", "r"]), texts))
    return draw(worlds()).changed(described(name, text) for name, text in result.items())


STEPS = st.one_of(
    *[st.sampled_from(MOVES)] * 6,
    worlds_with_sidecars(),
    st.sampled_from(["accompany", "start_relay", "connect_relay", "connect_envoy"]),
)


def settled(chain: Chain) -> None:
    while chain.relay.node is None:
        chain.envoy_to_relay()
    if chain.server is None:
        chain.connect_relay()
    chain.finish()


@settings(max_examples=300, deadline=None)
@given(st.lists(STEPS, max_size=60))
def test_sidecars_apply_published_configs_and_report_rejections(steps: list[object]) -> None:
    chain = SidecarChain()
    last = ResourceSet()
    for step in steps:
        if isinstance(step, ResourceSet):
            chain.publish(step)
            last = step
        else:
            getattr(chain, str(step))()
    chain.publish(last.changed([described("last", "one")]))
    settled(chain)
    wanted = chain.publication.current.by_type[SIDECAR_CONFIG]
    good = {name: each.body for name, each in wanted.items() if each.body != b"bad"}
    assert {name: each.body for name, each in chain.does.items() if name in good} == good
    assert chain.does.keys() <= wanted.keys()
    assert chain.server is not None
    refused = [each.resource for each in chain.server.conversation.rejected_resources()]
    assert {each.key for each in refused if each.type_url == SIDECAR_CONFIG} == {
        each.key for each in wanted.values() if each.body == b"bad"
    }
    sidecar_config = chain.kept.by_type.get(SIDECAR_CONFIG, {})
    assert {name: each.body for name, each in sidecar_config.items()} == {
        name: each.body for name, each in chain.does.items()
    }


def test_listener_is_sent_after_sidecar_applied_its_config() -> None:
    chain = SidecarChain()
    chain.publish(ResourceSet([make_resource(LISTENER, "l", "r|one"), described("p", "one")]))
    while chain.relay.node is None:
        chain.envoy_to_relay()
    chain.connect_relay()
    while Chain.step(chain):
        pass
    assert chain.relay.sidecar_configs
    assert chain.envoy.has[LISTENER] == {}
    chain.finish()
    assert set(chain.envoy.has[LISTENER]) == {"l"}


def test_unused_sidecar_config_is_removed_after_listener_that_used_it() -> None:
    chain = SidecarChain()
    chain.publish(ResourceSet([make_resource(LISTENER, "l", "r|one"), described("p", "one")]))
    settled(chain)
    chain.publish(ResourceSet())
    before = []
    while chain.step():
        before.append((bool(chain.envoy.has[LISTENER]), bool(chain.does)))
    chain.finish()
    assert (False, True) in before
    assert (True, False) not in before
    assert chain.does == {}


def test_agent_without_sidecars_requests_no_sidecar_configs() -> None:
    chain = Chain()
    chain.publish(ResourceSet([make_resource(CLUSTER, "a", "one"), described("p", "one")]))
    settled(chain)
    assert chain.server is not None
    assert chain.server.conversation.subscription(SIDECAR_CONFIG) is None
    assert set(chain.envoy.has[CLUSTER]) == {"a"}


def test_sidecar_config_files_survive_round_trip() -> None:
    told = {"gatehouse/a.json": b"[1]", "secret": bytes(range(256))}
    resource = sidecar_configs.resource(
        "authenticator", "p1", told, origins=(Origin("HTTPRoute", "a", "b"),)
    )
    assert resource.name == "authenticator/p1"
    assert resource.secret
    assert sidecar_configs.companion(resource) == "authenticator"
    assert sidecar_configs.files(resource) == told


@pytest.mark.parametrize("path", ["../x", "/etc/passwd", "a/../../x", "", "a//b", ".x", "a\0b"])
def test_sidecar_config_path_outside_directory_is_rejected(path: str) -> None:
    with pytest.raises(ValueError, match="invalid file path"):
        sidecar_configs.files(sidecar_configs.resource("authenticator", "p", {path: b""}))


def test_malformed_sidecar_config_is_rejected() -> None:
    with pytest.raises(ValueError, match="invalid body"):
        sidecar_configs.files(Resource.make(SIDECAR_CONFIG, "authenticator/p", b"\xff"))


def test_sidecar_config_removed_while_disconnected_is_dropped_after_reconnect() -> None:
    chain = SidecarChain()
    chain.publish(ResourceSet([described("p", "one")]))
    while chain.relay.node is None:
        chain.envoy_to_relay()
    chain.connect_relay()
    while Chain.step(chain):
        pass
    assert chain.relay.sidecar_configs
    chain.publish(ResourceSet())
    chain.connect_relay()
    chain.finish()
    assert not chain.relay.sidecar_configs
    assert chain.does == {}
