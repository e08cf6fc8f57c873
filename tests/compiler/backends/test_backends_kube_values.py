"""Hostile values from objects stay values, and decisions agree with the IR."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest
from google.protobuf import json_format
from hypothesis import given, settings
from hypothesis import strategies as st

from fakes.kube_serving import EVERYTHING, HOST, ProxyResponse, World, world
from gatehouse.compiler.backends import envoy
from gatehouse.compiler.backends.envoy.kube_apiserver import policy_metadata
from gatehouse.compiler.ir import gateway as ir_gateway
from gatehouse.compiler.ir import kube_apiserver as ir
from gatehouse.dataplane.xds.resources import LISTENER_TYPE_URL, SCOPE_TYPE_URL

HOSTILE = (
    "]]", "]==]", "\\", '"', "'", "\n", "\r\nX: y", "\0", "\x1b", "%REQ(:path)%", "%%", "{}", "*",
    "${x}", "--", "os.exit()", '"..os.exit().."', "\ud800", "ä", "\u2028", "", " ", ",", "=",
)  # fmt: skip
values = st.one_of(
    st.sampled_from(HOSTILE), st.text(max_size=8), st.sampled_from(["pods", "get", "a/b"])
)
listed = st.lists(values, max_size=2).map(lambda items: tuple(sorted({*items})))
sets = st.builds(ir.Names, listed, listed, listed, st.booleans())
rules = st.tuples(*[sets] * len(ir.DispatchRule.__struct_fields__)).map(
    lambda fields: ir.DispatchRule(*fields)
)


def gateway(cluster: ir.ApiCluster) -> ir_gateway.GatewayConfiguration:
    secret = ir_gateway.SecretBytes(b"k")
    certificate = ir_gateway.Certificate("c", b"c", secret)
    token = ir_gateway.SecretFile("t", ir_gateway.SecretBytes(b'to"ken %x%\n'))
    listener = ir.ApiListener(6443, (cluster,), ("c",))
    return ir_gateway.GatewayConfiguration(
        "ns/gw", api_listeners=(listener,), certificates=(certificate,), secrets=(token,)
    )  # fmt: skip


@settings(max_examples=25, deadline=None)
@given(st.lists(rules, max_size=2), values, values, values)
def test_hostile_value_is_written_or_reported(
    dispatch_rules: list[ir.DispatchRule], name: str, schema: str, server: str
) -> None:
    policy = ir.DispatchPolicy(tuple(dispatch_rules), (server,), schema)
    cluster = ir.ApiCluster(
        name, (HOST,), (ir.KubeApiServer(server, "10.0.0.1", 443, "/p"),), (policy,),
        (ir.FlowSchema(schema, ir.InFlight(1), ir.TokenBucket(1, 1)),), token="t",
        tls=ir.UpstreamTls(server, "trust", "cert"),
    )  # fmt: skip
    generator = envoy.EnvoyGenerator(envoy.EnvoyCapabilities())
    generated = generator.generate(gateway(cluster))
    assert {item.origin for item in generated.unsupported} <= {cluster.origin}
    again = envoy.EnvoyGenerator(envoy.EnvoyCapabilities()).generate(gateway(cluster))
    assert generated.resources.version == again.resources.version
    # No value of an object is part of the script's text.
    ports = generated.resources.by_type.get(LISTENER_TYPE_URL, {})
    scripts = {port.body.count(b"function envoy_on_request") for port in ports.values()}
    assert scripts <= {0, 1}


def verbs(rule: ir.DispatchRule) -> Any:
    metadata = policy_metadata.policy_metadata(
        ir.ApiCluster("c", (), (), (ir.DispatchPolicy((rule,)),))
    )
    return json_format.MessageToDict(metadata)["policies"][0]["rules"][0]["verbs"]


def test_impossible_values_are_dropped() -> None:
    rule = ir.DispatchRule(verbs=ir.Names(("\ud800", "a\0b", "get"), ("\0",), ("\ud801",)))
    expected = {"exact": ["get"], "prefixes": [], "endings": [], "others": False}
    assert verbs(rule) == expected
    # A set of impossible names equals the empty set, or everything if negated.
    for others in (False, True):
        rule = ir.DispatchRule(verbs=ir.Names(("\ud800",), others=others))
        assert verbs(rule) is others


def test_policy_change_is_one_scope() -> None:
    generator = envoy.EnvoyGenerator(envoy.EnvoyCapabilities())
    policy = ir.DispatchPolicy((EVERYTHING,), schema="s")
    schemas = (ir.FlowSchema("s", ir.TokenBucket(1, 1)),)
    server = ir.KubeApiServer("https://one", "10.0.0.1", 443)
    before = ir.ApiCluster("c", ("c",), (server,), (policy,), schemas)
    after = ir.ApiCluster("c", ("c",), (server,), (policy, policy), schemas)
    first = generator.generate(gateway(before)).resources
    second = generator.generate(gateway(after)).resources
    assert second.differing(first) == {(SCOPE_TYPE_URL, "api/6443/c")}
    empty = generator.generate(ir_gateway.GatewayConfiguration("ns/gw")).resources
    assert not empty.by_type.get(LISTENER_TYPE_URL)


def _means(names: ir.Names, value: str) -> bool:
    endings = tuple(f"/{subresource}" for subresource in names.subresources)
    return value in names.exact or value.startswith(names.prefixes) or value.endswith(endings)


def _holds(rule: ir.DispatchRule, user: str, groups: list[str], request: dict[str, Any]) -> bool:
    def held(names: ir.Names, value: str) -> bool:
        return _means(names, value) != names.others

    grouped = any(_means(rule.user_groups, group) for group in groups) != rule.user_groups.others
    if not (held(rule.verbs, request["verb"]) and held(rule.users, user) and grouped):
        return False
    if "resource" not in request:
        return held(rule.paths, request["path"])
    parts = (rule.groups, "group"), (rule.resources, "resource"), (rule.names, "name")
    return all(held(names, request[key]) for names, key in parts)


REQUESTS: list[tuple[str, str, dict[str, Any]]] = [
    ("GET", "/version", {"verb": "get", "path": "/version"}),
    ("GET", "/a%22%5D%5D", {"verb": "get", "path": '/a"]]'}),
    ("POST", "/", {"verb": "post", "path": "/"}),
    ("GET", "/api/v1/pods", {"verb": "list", "group": "", "resource": "pods", "name": ""}),
    ("GET", "/api/v1/pods/p", {"verb": "get", "group": "", "resource": "pods", "name": "p"}),
    ("PUT", "/apis/apps/v1/namespaces/n/pods/a%5C/scale",
     {"verb": "update", "group": "apps", "resource": "pods/scale", "name": "a\\"}),
    ("DELETE", "/apis/apps/v1/namespaces/n/%25x",
     {"verb": "deletecollection", "group": "apps", "resource": "%x", "name": ""}),
]  # fmt: skip


@pytest.mark.process
async def test_real_envoy_selects_policies_as_the_ir_specifies() -> None:
    dice = random.Random(7)
    pools = {
        "verbs": ["get", "list", "update", "post", "deletecollection", "x"],
        "users": ["alice", "al", "bob", 'b"o]]b', "system:anonymous"],
        "user_groups": ["dev", "de", "ops", "system:authenticated", "system:unauthenticated"],
        "groups": ["", "apps", "ap"], "resources": ["pods", "pods/scale", "%x", "po", "scale"],
        "names": ["", "p", "a\\", "a"], "paths": ["/", "/version", "/v", '/a"]]', "/a"],
    }  # fmt: skip

    def names(field: str) -> ir.Names:
        if dice.random() < 0.35:
            return ir.ANY

        def some() -> tuple[str, ...]:
            return tuple(sorted(dice.sample(pools[field], dice.randint(0, 2))))

        endings = ("scale",) if field == "resources" and dice.random() < 0.3 else ()
        return ir.Names(some(), some() if dice.random() < 0.3 else (), endings, dice.random() < 0.4)

    async with world() as one:
        people = {
            "alice": ["dev", "system:authenticated"], 'b"o]]b': ["ops", "system:authenticated"],
            "": ["system:unauthenticated"],
        }  # fmt: skip
        contexts = {name: one.client(name, *people[name][:-1]) for name in people}
        for _ in range(25):
            dispatch_rules = [
                ir.DispatchRule(*(names(field) for field in ir.DispatchRule.__struct_fields__))
                for _ in range(8)
            ]
            chosen = [
                ir.DispatchPolicy((rule,), schema=str(n)) for n, rule in enumerate(dispatch_rules)
            ]
            schemas = tuple(ir.FlowSchema(str(n), ir.InFlight(0)) for n in range(8))
            cluster = one.cluster(*chosen, schemas=schemas)
            await one.serve(cluster)
            for name, groups in people.items():
                answers = await _ask_all(one, contexts[name])
                user = name or "system:anonymous"
                for (_, _, request), answer in zip(REQUESTS, answers, strict=True):
                    holding = (
                        n for n, r in enumerate(dispatch_rules) if _holds(r, user, groups, request)
                    )
                    index = next(holding, None)
                    assert _chosen(answer) == index, (user, request, dispatch_rules)


async def _ask_all(one: World, context: Any) -> list[ProxyResponse]:
    connection = await one.connect(context)
    answers = [await connection.ask(target, method) for method, target, _ in REQUESTS]
    connection.close()
    await asyncio.sleep(0)
    return answers


def _chosen(answer: ProxyResponse) -> int | None:
    if answer.status == 403:
        return None
    assert answer.status == 429, answer
    return int(answer.document["message"].partition("name=")[2].partition(",")[0])
