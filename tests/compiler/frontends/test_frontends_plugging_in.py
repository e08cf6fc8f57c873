"""A front end that plugs in by one record, in place of a built-in one."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from types import ModuleType
from typing import Any

import msgspec
import pytest

from gatehouse.apis import meta
from gatehouse.compiler.frontends import combined, gateway_api, hosted_apiserver
from gatehouse.compiler.frontends.certificate_validity import Dated
from gatehouse.compiler.frontends.contribution import Contribution
from gatehouse.compiler.frontends.front_end import FrontEnd
from gatehouse.compiler.frontends.kinds import DEADLINE_SUBJECTS, DesiredStatus, Kind, Kinds
from gatehouse.compiler.ir import gateway as ir
from gatehouse.compiler.ir.http import Cluster
from gatehouse.incremental.query import Ask, Engine, Key, Snapshot
from kube_base.types.resource import Resource

GATEWAY: Key = ("Gateway", "ns", "gw")
WIDGET: Key = ("Widget", "ns", "w")
CREATED = "2026-01-01T00:00:00Z"


class Widget(meta.KubernetesObject, frozen=True):
    """The view of a kind that only this test has."""

    size: int = 0


class WidgetStatus(DesiredStatus, frozen=True):
    """The status of a Widget."""

    size: int


def status(ask: Ask, key: Key) -> WidgetStatus:
    return WidgetStatus(ask.read(key).size)


def merge_status(_: Mapping[str, Any] | None, desired: WidgetStatus, now: str) -> dict[str, Any]:
    return {"size": desired.size, "since": now}


def contribution(_: Ask, gateway: Key) -> Contribution:
    return Contribution(clusters=(Cluster(f"widgets-of-{gateway[2]}", (), "tcp"),))


def attached(_: Ask, gateway: Key) -> Mapping[tuple[Key, str], int]:
    return {(gateway, "l"): 2}


def extend(_: Ask, __: Key, gateway: ir.GatewayConfiguration) -> ir.GatewayConfiguration:
    assert not gateway.l4_listeners
    return msgspec.structs.replace(gateway, l4_listeners=(ir.L4Listener(9, "TCP", ()),))


FRONT_END = FrontEnd(
    Kinds(
        Kind(
            Resource("example.org", "v1", "widgets", "Widget"),
            Widget,
            status=status,
            gateways_of=lambda _, __: (GATEWAY,),
            certificates=lambda ask, key: (Dated("", ((ask.read(key).size,) * 2,)),),
        )
    ),
    merge_status,
    contribution=contribution,
    attached=attached,
    extend=extend,
)


@pytest.fixture
def joined(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """A copy of the module `combined` that joins Gateway API with the front end of this test."""
    monkeypatch.setattr(hosted_apiserver, "HOSTED_API_SERVER_FRONT_END", FRONT_END)
    spec = importlib.util.spec_from_file_location("joined", combined.__file__)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def engine(joined: ModuleType) -> Engine:
    result = Engine(Snapshot(joined.INDEXES))
    result.commit({gateway_api.SETTINGS_KEY: gateway_api.ControllerSettings(bind="any")})
    listener = {"name": "l", "port": 80, "protocol": "HTTP"}
    objects: dict[Key, dict[str, Any]] = {
        ("GatewayClass", "", "c"): {"spec": {"controllerName": gateway_api.ENVOY}},
        GATEWAY: {"spec": {"gatewayClassName": "c", "listeners": [listener]}},
        WIDGET: {"size": 3},
    }
    for key, body in objects.items():
        metadata = {"name": key[2], "namespace": key[1], "creationTimestamp": CREATED}
        result.commit({key: joined.decode_object(key[0], {"metadata": metadata, **body})})
    return result


def test_front_end_adds_to_gateway(joined: ModuleType, engine: Engine) -> None:
    with engine.compile() as ask:
        gateway = ask(joined.compile_combined_gateway, GATEWAY)
    assert [cluster.name for cluster in gateway.clusters] == ["widgets-of-gw"]
    assert [l4_listener.port for l4_listener in gateway.l4_listeners] == [9]


def test_objects_of_front_end_count_as_attached(joined: ModuleType, engine: Engine) -> None:
    with engine.compile() as ask:
        (listener,) = ask(joined.desired_status, GATEWAY).listeners
    assert listener.attached == 2


def test_status_of_front_end_is_merged_by_its_record(joined: ModuleType, engine: Engine) -> None:
    with engine.compile() as ask:
        desired = ask.map(joined.desired_status, ask(joined.status_subjects))[WIDGET]
    merged = joined.merge_combined_status("Widget", None, desired, CREATED)
    assert merged == {"size": 3, "since": CREATED}


def test_status_of_front_end_is_deferred_and_has_deadlines(
    joined: ModuleType, engine: Engine
) -> None:
    with engine.compile() as ask:
        serving = ask.map(joined.gateways_of_attached, ask(joined.status_subjects))
        deadlines = ask.map(joined.deadlines, ask.read(DEADLINE_SUBJECTS))
    assert dict(serving.items()) == {WIDGET: (GATEWAY,)}
    assert dict(deadlines.items()) == {WIDGET: (3,)}
