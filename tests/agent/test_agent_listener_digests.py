"""Digests of filter chains and of the rest of a listener."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from envoy.config.listener.v3 import listener_pb2
from google.protobuf import json_format

from fakes.envoy_model import make_resource
from fakes.envoy_running import cluster
from gatehouse.agent.envoy.listener_digests import DIGEST_PATTERN, digests, with_digests
from gatehouse.dataplane.xds.resources import LISTENER_TYPE_URL, XdsResource

Listener = listener_pb2.Listener


def resource(proto: Listener) -> XdsResource:
    return XdsResource.make(LISTENER_TYPE_URL, proto.name, proto.SerializeToString())


def example() -> Listener:
    proto = Listener(name="tcp/443")
    proto.address.socket_address.port_value = 443
    for name in ("one", "two"):
        chain = proto.filter_chains.add(name=name)
        chain.metadata.filter_metadata["own"].update({"b": "b", "a": "a"})
    proto.default_filter_chain.name = "others"
    return proto


def change_chain(proto: Listener) -> None:
    proto.filter_chains[0].filter_chain_match.server_names.append("more")


def change_default(proto: Listener) -> None:
    proto.default_filter_chain.filter_chain_match.transport_protocol = "tls"


def add_chain(proto: Listener) -> None:
    proto.filter_chains.add(name="three")


def remove_chain(proto: Listener) -> None:
    del proto.filter_chains[1]


def reorder_chains(proto: Listener) -> None:
    proto.filter_chains.reverse()


def change_address(proto: Listener) -> None:
    proto.address.socket_address.port_value = 444


def change_nothing(proto: Listener) -> None:
    proto.CopyFrom(example())


@pytest.mark.parametrize(
    ("change", "gone", "new"),
    [
        (change_chain, 1, 1),
        (change_default, 1, 1),
        (add_chain, 0, 1),
        (remove_chain, 1, 0),
        (reorder_chains, 0, 0),
        (change_address, 1, 1),
        (change_nothing, 0, 0),
    ],
)
def test_digests_change_with_their_part_only(
    change: Callable[[Listener], None], gone: int, new: int
) -> None:
    proto = example()
    before = set(digests(with_digests(resource(proto)).body))
    change(proto)
    after = set(digests(with_digests(resource(proto)).body))
    assert (len(before - after), len(after - before)) == (gone, new)


def test_listener_with_digests_is_otherwise_unchanged() -> None:
    original = resource(example())
    stamped = with_digests(original)
    assert (stamped.key, stamped.version) == (original.key, original.version)
    assert len(digests(stamped.body)) == 4
    assert digests(original.body) == []
    proto = Listener.FromString(stamped.body)
    places = [chain.metadata for chain in (*proto.filter_chains, proto.default_filter_chain)]
    for metadata in (proto.metadata, *places):
        del metadata.filter_metadata["gatehouse"]
    proto.ClearField("metadata")
    proto.default_filter_chain.ClearField("metadata")
    assert proto == example()


@pytest.mark.parametrize(
    "other", [cluster("web"), make_resource(LISTENER_TYPE_URL, "bad", "bad listener")]
)
def test_other_or_invalid_resource_gets_no_digests(other: XdsResource) -> None:
    assert with_digests(other) is other


@pytest.mark.parametrize("indent", [None, 1, 2])
def test_digests_are_found_in_the_text_that_envoy_shows(indent: int | None) -> None:
    body = with_digests(resource(example())).body
    text = json_format.MessageToJson(
        Listener.FromString(body), preserving_proto_field_name=True, indent=indent
    )
    assert sorted(match.decode() for match in DIGEST_PATTERN.findall(text.encode())) == digests(
        body
    )
