"""UpstreamCluster fields beside rules: servers, limits, logging, feature gates."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from gatehouse.apis.upstream_clusters import (
    FEATURE_GATES,
    STREAMS_ANNOTATION,
    FlowControlSchema,
    ServerSpec,
    UpstreamClusterSpec,
)
from gatehouse.compiler.frontends.upstream_cluster import (
    auth_cache_ttls,
    dispatch_policies,
    feature_gates,
    flow_control,
    servers,
)
from gatehouse.compiler.frontends.upstream_cluster.findings import ClusterReason
from gatehouse.compiler.frontends.upstream_cluster.flow_control import SharedLimits
from gatehouse.compiler.ir.kube_apiserver import DividedLimit, FlowSchema, InFlight, TokenBucket
from gatehouse.compiler.ir.kube_apiserver import KubeApiServer as IrServer

Object = dict[str, Any]
EVERYTHING = {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}


def read(annotations: dict[str, str] | None = None, **spec: Any) -> dispatch_policies.RequestPolicy:
    whole = {"servers": [{"endpoint": "http://a"}, {"endpoint": "http://b"}], **spec}
    return dispatch_policies.translate_policies(
        annotations or {}, msgspec.convert(whole, UpstreamClusterSpec)
    )


def said(
    meaning: dispatch_policies.RequestPolicy,
    reason: ClusterReason = ClusterReason.PARTIALLY_INVALID,
) -> list[str]:
    return [finding.message for finding in meaning.findings if finding.reason is reason]


@pytest.mark.parametrize(
    ("endpoint", "expected"),
    [
        ("https://10.0.0.1:6443", ("10.0.0.1", 6443, "")),
        ("https://10.0.0.1", ("10.0.0.1", 443, "")),
        ("http://A.example", ("a.example", 80, "")),
        ("https://[fd00::1]:6443", ("fd00::1", 6443, "")),
        ("https://a.example/", ("a.example", 443, "")),
        ("https://a.example/clusters/one/", ("a.example", 443, "/clusters/one")),
    ],
)
def test_endpoint_is_parsed_to_a_server(endpoint: str, expected: tuple[str, int, str]) -> None:
    assert servers.parse_server(endpoint) == IrServer(endpoint, *expected)


@pytest.mark.parametrize(
    "endpoint",
    [
        "https://", "https://:6443", "https://user@a", "https://a?b=c", "https://a#b", "ftp://a",
        "https://a:0", "https://a:65536", "https://a:x", "https://a b", "https://a\n", "https://[::1",
        "https://[fd00::1%25eth0]", "https://a/\"", "https://-a", "https://a/%\n", "https://ä",
        "https://10.0.0.256",
    ],
)  # fmt: skip
def test_invalid_endpoint_is_reported(endpoint: str) -> None:
    problem = servers.parse_server(endpoint)
    assert isinstance(problem, str)
    assert problem


def test_servers_are_deduplicated_and_disabled_ones_omitted() -> None:
    listed = [("https://b", False), ("https://a", False), ("https://b", True), ("https://a", False)]
    translation = servers.translate_servers(
        tuple(ServerSpec(name, disabled) for name, disabled in listed)
    )
    assert [server.name for server in translation.enabled] == ["https://a"]
    assert (translation.scheme, translation.known) == (
        "https",
        frozenset({"https://a", "https://b"}),
    )


def test_server_with_another_scheme_is_omitted_and_passwords_are_not_reported() -> None:
    translation = servers.translate_servers(
        (ServerSpec("https://a"), ServerSpec("http://b"), ServerSpec("https://u:secret@c"))
    )
    assert [server.name for server in translation.enabled] == ["https://a"]
    assert translation.problems[0].startswith(
        "servers[1].endpoint: 'http://b': must have the same scheme"
    )
    assert "secret" not in translation.problems[1]


def schema(**fields: Any) -> FlowControlSchema:
    return msgspec.convert({"name": "s", **fields}, FlowControlSchema)


IN_FLIGHT = {"maxRequestsInflight": {"max": 5}, "globalMaxRequestsInflight": {"max": 20}}
BUCKET = {"tokenBucket": {"qps": 1, "burst": 2}, "globalTokenBucket": {"qps": 10, "burst": 20}}


@pytest.mark.parametrize(
    ("limit_schema", "spanning", "expected"),
    [
        (schema(exempt={}), SharedLimits(), None),
        (schema(maxRequestsInflight={}), SharedLimits(), FlowSchema("s", InFlight(0))),
        (schema(maxRequestsInflight={"max": 7}), SharedLimits(), FlowSchema("s", InFlight(7))),
        (
            schema(**BUCKET),
            SharedLimits(gate=True, counter=True),
            FlowSchema("s", TokenBucket(1, 2)),
        ),
        (
            schema(strategy="globalCount", **BUCKET),
            SharedLimits(gate=True, counter=True),
            FlowSchema("s", TokenBucket(10, 20), TokenBucket(10, 20)),
        ),
        (
            schema(strategy="globalAllocate", **BUCKET),
            SharedLimits(counter=True),
            FlowSchema("s", TokenBucket(1, 2)),
        ),
        (
            schema(strategy="globalCount", **BUCKET),
            SharedLimits(gate=True),
            FlowSchema("s", TokenBucket(1, 2)),
        ),
        (
            schema(strategy="globalAllocate", **IN_FLIGHT),
            SharedLimits(gate=True, replicas=3),
            FlowSchema("s", InFlight(6), divided=DividedLimit(20, 1)),
        ),
        (
            schema(strategy="globalCount", **IN_FLIGHT),
            SharedLimits(gate=True, replicas=50),
            FlowSchema("s", InFlight(1), divided=DividedLimit(20, 1)),
        ),
        (
            schema(strategy="globalCount", **IN_FLIGHT),
            SharedLimits(gate=True, replicas=0),
            FlowSchema("s", InFlight(20), divided=DividedLimit(20, 1)),
        ),
        (
            schema(strategy="local", **IN_FLIGHT),
            SharedLimits(gate=True, replicas=3),
            FlowSchema("s", InFlight(5)),
        ),
    ],
)
def test_local_and_shared_limits_are_translated(
    limit_schema: FlowControlSchema, spanning: SharedLimits, expected: FlowSchema | None
) -> None:
    assert flow_control.translate_schema(limit_schema, spanning).schema == expected


@pytest.mark.parametrize("replicas", range(1, 40))
def test_sum_of_shares_exceeds_the_limit_only_if_each_share_is_one(
    replicas: int,
) -> None:
    limit_schema = schema(strategy="globalCount", **IN_FLIGHT)
    translated = flow_control.translate_schema(
        limit_schema, SharedLimits(gate=True, replicas=replicas)
    ).schema
    assert translated is not None
    assert isinstance(translated.limit, InFlight)
    assert translated.limit.max * replicas <= 20 or translated.limit.max == 1


@pytest.mark.parametrize(
    "limit_schema",
    [
        schema(),
        schema(exempt={}, maxRequestsInflight={"max": 1}),
        schema(maxRequestsInflight={"max": -1}),
        schema(tokenBucket={"qps": 0, "burst": 1}),
        schema(tokenBucket={"qps": -1, "burst": 1}),
        schema(tokenBucket={"qps": 2, "burst": 1}),
        schema(
            strategy="globalCount",
            maxRequestsInflight={"max": 2},
            globalMaxRequestsInflight={"max": 1},
        ),
        schema(
            strategy="globalCount",
            tokenBucket={"qps": 2, "burst": 2},
            globalTokenBucket={"qps": 1, "burst": 1},
        ),
    ],
)
def test_invalid_limit_rejects_all_requests(limit_schema: FlowControlSchema) -> None:
    translated = flow_control.translate_schema(limit_schema, SharedLimits(gate=True, counter=True))
    assert translated.schema == FlowSchema("s", InFlight(0))
    assert "requests of policies with this schema are rejected" in translated.problems[0]


def test_policy_with_an_unknown_schema_rejects_requests() -> None:
    parsed = read(dispatchPolicies=[{"rules": [EVERYTHING], "flowControlSchemaName": "gone"}])
    assert parsed.schemas == (FlowSchema("gone", InFlight(0)),)
    assert parsed.policies[0].schema == "gone"
    assert "spec.dispatchPolicies[0].flowControlSchemaName: 'gone'" in said(parsed)[0]


def test_first_of_two_schemas_with_one_name_applies() -> None:
    listed = [{"name": "s", "maxRequestsInflight": {"max": n}} for n in (1, 2)]
    policy = {"rules": [EVERYTHING], "flowControlSchemaName": "s"}
    parsed = read(flowControl={"flowControlSchemas": listed}, dispatchPolicies=[policy])
    assert parsed.schemas == (FlowSchema("s", InFlight(1)),)
    assert said(parsed) == ["spec.flowControl.flowControlSchemas[1] ('s'): name must be unique"]


@pytest.mark.parametrize(
    ("cluster", "policy", "logged"),
    [
        ("", "", False),
        ("on", "", True),
        ("", "on", True),
        ("on", "on", True),
        ("off", "on", False),
        ("on", "off", False),
        ("off", "", False),
        ("", "off", False),
    ],
)
def test_logging_is_off_by_default_and_off_overrides_on(
    cluster: str, policy: str, logged: bool
) -> None:
    parsed = read(
        logging={"mode": cluster}, dispatchPolicies=[{"rules": [EVERYTHING], "logMode": policy}]
    )
    assert parsed.policies[0].logged is logged


def test_both_spellings_of_the_subset_are_supported_and_the_older_is_reported() -> None:
    new = read(dispatchPolicies=[{"rules": [EVERYTHING], "upstreamSubset": ["http://b"]}])
    old = read(dispatchPolicies=[{"rules": [EVERYTHING], "upsteamSubset": ["http://b"]}])
    assert new.policies == old.policies
    assert new.policies[0].servers == ("http://b",)
    assert said(new, ClusterReason.DIFFERS) == []
    assert said(old, ClusterReason.DIFFERS) == [
        "spec.dispatchPolicies[0]: upsteamSubset is supported; KubeGateway ignores it and uses all "
        "servers"
    ]


def test_limits_of_own_requests_are_reported_as_differences() -> None:
    parsed = read(clientConfig={"qps": 10, "burst": 20, "qpsDivisor": 2})
    assert said(parsed, ClusterReason.DIFFERS) == [
        "spec.clientConfig.qps: 10 has no effect; KubeGateway limits its own requests",
        "spec.clientConfig.burst: 20 has no effect; KubeGateway limits its own requests",
        "spec.clientConfig.qpsDivisor: 2 has no effect; KubeGateway limits its own requests",
    ]
    assert said(parsed) == []
    unset = read(clientConfig={"qps": 0, "burst": 0, "qpsDivisor": 0})
    assert said(unset, ClusterReason.DIFFERS) == []


def test_subset_of_unknown_servers_does_not_mean_all_servers() -> None:
    parsed = read(dispatchPolicies=[{"rules": [EVERYTHING], "upstreamSubset": ["http://gone"]}])
    assert parsed.policies[0].servers == ("http://gone",)
    assert "'http://gone' not found in spec.servers" in said(parsed)[0]


def test_invalid_rules_and_policies_are_reported_and_others_keep_their_index() -> None:
    bad = {"verbs": [], "apiGroups": [""], "resources": ["pods"]}
    parsed = read(
        dispatchPolicies=[{"rules": [bad]}, {"rules": [bad, EVERYTHING]}, {"rules": [EVERYTHING]}]
    )
    assert [(origin.index, origin.rules) for origin in parsed.origins] == [(1, (1,)), (2, (0,))]
    assert said(parsed) == [
        "spec.dispatchPolicies[0].rules[0] is rejected: verbs: must not be empty",
        "spec.dispatchPolicies[0]: no rule can match a request",
        "spec.dispatchPolicies[1].rules[0] is rejected: verbs: must not be empty",
    ]


TOKEN, BAD_TOKEN = (
    "authentication-token-success-cache-ttl",
    "authentication-token-failure-cache-ttl",
)
MAY, MAY_NOT = "authorization-cache-authorized-ttl", "authorization-cache-unauthorized-ttl"


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        ({}, (600, 10, 300, 30)),
        ({TOKEN: "1m30s"}, (90, 10, 300, 30)),
        ({TOKEN: "0", BAD_TOKEN: "0s", MAY: "0m", MAY_NOT: "0ms"}, (0, 0, 0, 0)),
        ({TOKEN: "1h", MAY: " 500ms ", MAY_NOT: "2s"}, (3600, 10, 0.5, 2)),
    ],
)
def test_auth_cache_ttls_are_parsed(texts: dict[str, str], expected: tuple[float, ...]) -> None:
    parsed = auth_cache_ttls.parse_cache_ttls(
        {f"gatehouse.dev/{name}": text for name, text in texts.items()}
    )
    ttls = parsed.identity
    assert (ttls.good_for, ttls.bad_for, ttls.allowed_for, ttls.denied_for) == expected
    assert parsed.problems == ()


@pytest.mark.parametrize("text", ["", "10", "-1s", "1h1ms", "61m", "1e3s", "forever", "10 m", "٣s"])
def test_invalid_ttl_is_reported_and_the_default_applies(text: str) -> None:
    parsed = auth_cache_ttls.parse_cache_ttls(
        {f"gatehouse.dev/{MAY}": text, f"gatehouse.dev/{TOKEN}": "1s"}
    )
    assert (parsed.identity.allowed_for, parsed.identity.good_for) == (300, 1)
    (problem,) = parsed.problems
    assert problem.startswith(f"annotation gatehouse.dev/{MAY}: {text!r} must be a duration")


@pytest.mark.parametrize(
    ("text", "deny", "spanning", "problems"),
    [
        ("", False, False, 0),
        ("DenyAllRequests=true", True, False, 0),
        ("DenyAllRequests=false,GlobalRateLimiter=1", False, True, 0),
        (" DenyAllRequests = TRUE , ", True, False, 0),
        ("DenyAllRequests=yes,AllAlpha=true", False, False, 2),
        ("DenyAllRequests", False, False, 1),
    ],
)
def test_feature_gates_are_parsed(text: str, deny: bool, spanning: bool, problems: int) -> None:
    gates = feature_gates.parse_feature_gates({FEATURE_GATES: text})
    assert (gates.deny, gates.spanning, len(gates.problems)) == (deny, spanning, problems)


def test_feature_gates_without_effect_are_reported() -> None:
    gates = feature_gates.parse_feature_gates(
        {FEATURE_GATES: "Tracing=true,CloseConnectionWhenIdle=false"}
    )
    assert [difference.split()[0] for difference in gates.differences] == ["Tracing"]


@pytest.mark.parametrize(
    ("text", "streams", "problems"),
    [
        ("", 100, 0),
        ("1", 1, 0),
        ("1000", 1000, 0),
        ("2147483647", 2147483647, 0),
        ("0", 100, 1),
        ("-1", 100, 1),
        ("2147483648", 100, 1),
        ("1e3", 100, 1),
        ("\u0661", 100, 1),
        ("9" * 5000, 100, 1),
    ],
)
def test_streams_per_connection_are_parsed(text: str, streams: int, problems: int) -> None:
    meaning = read({STREAMS_ANNOTATION: text})
    assert (meaning.streams, len(said(meaning))) == (streams, problems)
    assert all(STREAMS_ANNOTATION in message for message in said(meaning))
