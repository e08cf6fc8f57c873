"""Over any history of changes, an incremental compile equals a compile from scratch."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from fakes.upstream_worlds import CREATED, EVERYTHING, LISTENER, World, b64, ca, spec
from gatehouse.compiler.frontends import combined, gateway_api
from gatehouse.incremental.query import Key

Object = dict[str, Any]
Edit = tuple[Key, Object | None]

NAMES = ["a.example", "b.example", "c.example"]
GATES = {"proxy.kubegateway.io/feature-gates": "GlobalRateLimiter=true,DenyAllRequests=true"}
ANNOTATIONS: list[Object] = [
    {},
    {"gatehouse.dev/gateways": "ns/gw"},
    {"gatehouse.dev/gateways": "ns/gone"},
    GATES,
]
LIMIT = {
    "name": "s",
    "strategy": "globalCount",
    "maxRequestsInflight": {"max": 1},
    "globalMaxRequestsInflight": {"max": 10},
}
SPECS: list[Object] = [
    spec(),
    spec(
        flowControl={"flowControlSchemas": [LIMIT]},
        dispatchPolicies=[{"rules": [EVERYTHING], "flowControlSchemaName": "s"}],
    ),
    spec(
        servers=[{"endpoint": "https://a"}],
        clientConfig={"secretRef": {"namespace": "ns", "name": "s"}},
    ),
    spec(servers="nonsense"),
]


def cluster(name: str, created: str, annotations: Object, raw_spec: Object, also: str) -> Edit:
    serving = (
        {} if raw_spec["servers"] == "nonsense" else {"secureServing": {"serverNames": [also]}}
    )
    metadata = {"name": name, "creationTimestamp": created, "annotations": annotations}
    return ("UpstreamCluster", "", name), {"metadata": metadata, "spec": {**raw_spec, **serving}}


def gateway(name: str, listeners: list[Object]) -> Edit:
    metadata = {"name": name, "namespace": "ns", "creationTimestamp": CREATED}
    gateway_spec = {"gatewayClassName": "c", "listeners": listeners}
    return ("Gateway", "ns", name), {"metadata": metadata, "spec": gateway_spec}


def secret(data: Object) -> Edit:
    return ("Secret", "ns", "s"), {"metadata": {"name": "s", "namespace": "ns"}, "data": data}


MADE = st.one_of(
    st.builds(
        cluster,
        st.sampled_from(NAMES),
        st.sampled_from(["2025-01-01T00:00:00Z", CREATED]),
        st.sampled_from(ANNOTATIONS),
        st.sampled_from(SPECS),
        st.sampled_from([*NAMES, "x.example", "not a name"]),
    ),
    st.builds(
        gateway,
        st.sampled_from(["gw", "other"]),
        st.sampled_from(
            [
                [LISTENER],
                [{**LISTENER, "hostname": "x"}],
                [{"name": "web", "port": 80, "protocol": "HTTP"}],
            ]
        ),
    ),
    st.builds(secret, st.sampled_from([{}, {"ca.crt": ca(), "token": b64(b"t")}])),
)
EDITS = st.lists(st.lists(st.tuples(MADE, st.booleans()), max_size=5), min_size=1, max_size=6)


@settings(max_examples=150, deadline=None)
@given(EDITS, st.lists(st.integers(0, 4), min_size=6, max_size=6))
def test_incremental_compile_equals_full_compile(
    edits: list[list[tuple[Edit, bool]]], counts: list[int]
) -> None:
    world = World()
    for edit, count in zip(edits, counts, strict=False):
        changes: dict[Key, Any] = {("Replicas", "ns", "gw"): tuple("pqrs"[:count])}
        for (key, raw), gone in edit:
            changes[key] = None if gone or raw is None else combined.decode_object(key[0], raw)
        world.engine.commit(changes)
        oracle = World(gateway_api.ControllerSettings(bind="any"))
        oracle.engine.commit(world.engine.snapshot.objects())
        gateways, statuses = world.run()
        assert (gateways, statuses) == oracle.run()
        assert world.allocated == oracle.allocated
        for configuration in gateways.values():
            assert configuration is not None
            for listener in configuration.api_listeners:
                hosts = [host for api_cluster in listener.clusters for host in api_cluster.hosts]
                assert len(hosts) == len(set(hosts))
                named = {
                    name
                    for api_cluster in listener.clusters
                    for name in (api_cluster.token,)
                    if name
                }
                assert named <= {secret_file.name for secret_file in configuration.secrets}
