"""Resources of the agent over ADS: sidecar configurations, and the mark of a trial."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fakes.envoy_model import make_resource
from fakes.envoy_worlds import worlds
from fakes.relay_chain import MOVES, Chain, versions
from gatehouse.dataplane import features
from gatehouse.dataplane.origin import Origin
from gatehouse.dataplane.xds import sidecar_configs
from gatehouse.dataplane.xds.resources import (
    CLUSTER_TYPE_URL,
    LISTENER_TYPE_URL,
    SIDECAR_CONFIG_TYPE_URL,
    ResourceSet,
    XdsResource,
)


class SidecarChain(Chain):
    """Chain with sidecars beside Envoy, which reject ``bad`` configurations."""

    sidecars = ("gatehouse.model", features.ENVOY_TRIALS)

    def start_relay(self) -> None:
        super().start_relay()
        self.does: dict[str, XdsResource] = {}
        self.seen: object = None

    def accompany(self) -> bool:
        described = self.relay.sidecar_configs
        if described is self.seen:
            return False
        bad = [name for name, resource in described.items() if resource.body.startswith(b"bad")]
        self.relay.on_sidecar_result(described, dict.fromkeys(bad, "it is bad"))
        # What was taken before goes on in the place of what was refused.
        self.seen = self.relay.sidecar_configs
        self.does = dict(self.relay.sidecar_configs)
        return True

    def step(self) -> bool:
        return super().step() or self.accompany()


def described(name: str, text: str) -> XdsResource:
    return make_resource(SIDECAR_CONFIG_TYPE_URL, f"model/{name}", text)


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
    expected = chain.publication.current.by_type[SIDECAR_CONFIG_TYPE_URL]
    good = {name: resource.body for name, resource in expected.items() if resource.body != b"bad"}
    assert {name: resource.body for name, resource in chain.does.items() if name in good} == good
    assert chain.does.keys() <= expected.keys()
    assert chain.server is not None
    refused = [
        rejected_resource.resource
        for rejected_resource in chain.server.conversation.rejected_resources()
    ]
    assert {
        resource.key for resource in refused if resource.type_url == SIDECAR_CONFIG_TYPE_URL
    } == {resource.key for resource in expected.values() if resource.body == b"bad"}
    sidecar_config = chain.kept.by_type.get(SIDECAR_CONFIG_TYPE_URL, {})
    assert {name: resource.body for name, resource in sidecar_config.items()} == {
        name: resource.body for name, resource in chain.does.items()
    }


def test_listener_is_sent_after_sidecar_applied_its_config() -> None:
    chain = SidecarChain()
    chain.publish(
        ResourceSet([make_resource(LISTENER_TYPE_URL, "l", "r|one"), described("p", "one")])
    )
    while chain.relay.node is None:
        chain.envoy_to_relay()
    chain.connect_relay()
    while Chain.step(chain):
        pass
    assert chain.relay.sidecar_configs
    assert chain.envoy.has[LISTENER_TYPE_URL] == {}
    chain.finish()
    assert set(chain.envoy.has[LISTENER_TYPE_URL]) == {"l"}


def test_unused_sidecar_config_is_removed_after_listener_that_used_it() -> None:
    chain = SidecarChain()
    chain.publish(
        ResourceSet([make_resource(LISTENER_TYPE_URL, "l", "r|one"), described("p", "one")])
    )
    settled(chain)
    chain.publish(ResourceSet())
    before = []
    while chain.step():
        before.append((bool(chain.envoy.has[LISTENER_TYPE_URL]), bool(chain.does)))
    chain.finish()
    assert (False, True) in before
    assert (True, False) not in before
    assert chain.does == {}


def test_agent_without_sidecars_requests_no_sidecar_configs() -> None:
    chain = Chain()
    chain.publish(ResourceSet([make_resource(CLUSTER_TYPE_URL, "a", "one"), described("p", "one")]))
    settled(chain)
    assert chain.server is not None
    assert chain.server.conversation.subscription(SIDECAR_CONFIG_TYPE_URL) is None
    assert set(chain.envoy.has[CLUSTER_TYPE_URL]) == {"a"}


def test_sidecar_config_files_survive_round_trip() -> None:
    contents = {"gatehouse/a.json": b"[1]", "secret": bytes(range(256))}
    resource = sidecar_configs.resource(
        "authenticator", "p1", contents, origins=(Origin("HTTPRoute", "a", "b"),)
    )
    assert resource.name == "authenticator/p1"
    assert resource.secret
    assert sidecar_configs.sidecar_name(resource) == "authenticator"
    assert sidecar_configs.sidecar_files(resource) == contents


@pytest.mark.parametrize("path", ["../x", "/etc/passwd", "a/../../x", "", "a//b", ".x", "a\0b"])
def test_sidecar_config_path_outside_directory_is_rejected(path: str) -> None:
    with pytest.raises(ValueError, match="invalid file path"):
        sidecar_configs.sidecar_files(sidecar_configs.resource("authenticator", "p", {path: b""}))


def test_malformed_sidecar_config_is_rejected() -> None:
    with pytest.raises(ValueError, match="invalid body"):
        sidecar_configs.sidecar_files(
            XdsResource.make(SIDECAR_CONFIG_TYPE_URL, "authenticator/p", b"\xff")
        )


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


def test_relay_knows_a_trial_until_envoy_has_accepted_the_final_configuration() -> None:
    chain = SidecarChain()
    world = ResourceSet([make_resource(CLUSTER_TYPE_URL, "a", "one")])
    while chain.relay.node is None:
        chain.envoy_to_relay()
    chain.connect_relay()
    chain.publish(world.as_trial())
    chain.finish()
    assert chain.relay.trial
    assert chain.envoy_versions() == versions(world), "Envoy does not get the mark"
    assert chain.server is not None
    assert not chain.server.conversation.serving
    # A new stream, as after a restart of the control plane.
    chain.disconnect_relay()
    chain.connect_relay()
    chain.finish()
    assert chain.relay.trial
    assert not chain.server.conversation.serving
    final = world.changed([make_resource(CLUSTER_TYPE_URL, "b", "one")])
    chain.publish(final)
    while chain.relay.trial and chain.step():
        pass
    assert chain.envoy_versions() == versions(final)
    chain.finish()
    assert chain.server.conversation.serving
