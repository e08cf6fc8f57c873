"""Gatehouse beside the real KubeGateway: the same objects and requests, compared outcomes."""

from __future__ import annotations

import asyncio
import os
import random
from collections import Counter
from collections.abc import AsyncIterator, Callable
from typing import Any

import msgspec
import pytest
import pytest_asyncio

from fakes.gateway_pair import SERVERS, GatewayPair, Outcome, gateway_pair
from fakes.peer_differences import (
    FAILED_REVIEW,
    IMPERSONATED_UID,
    INVALID_HEADERS,
    NO_POLICY_MATCHES,
    PeerDifference,
)
from fakes.review_server import FAILING, IMPERSONATOR, TOKENS

pytestmark = [pytest.mark.long, pytest.mark.process, pytest.mark.peers]

Object = dict[str, Any]
SEED = int(os.environ.get("SEED", "20260823"))
"""Seed of the random objects and requests."""
CLUSTERS, REQUESTS = 8, 60


def without_uid(outcome: Outcome) -> tuple[tuple[str, str], ...]:
    """Return the impersonation headers other than the UID."""
    return tuple(pair for pair in outcome.identity if pair[0] not in IMPERSONATED_UID.values)


DIFFERENCES: dict[PeerDifference, Callable[[Outcome, Outcome], bool]] = {
    NO_POLICY_MATCHES: lambda old, new: (
        (old.status, new.status) == (500, 403) and "no router rule" in old.message
    ),
    FAILED_REVIEW: lambda old, new: (
        (old.status, new.status) == (403, 503) and "reviewed" in new.message
    ),
    INVALID_HEADERS: lambda old, new: (old.status, new.status) == (500, 400),
    IMPERSONATED_UID: lambda old, new: (
        old.decision == msgspec.structs.replace(new, identity=without_uid(new)).decision
        and old.identity != new.identity
    ),
}
"""Functions that return whether outcomes differ in an accepted way."""


@pytest_asyncio.fixture
async def pair() -> AsyncIterator[GatewayPair]:
    async with gateway_pair() as running:
        yield running


def difference(old: Outcome, new: Outcome) -> str | None:
    """Return the accepted reason of a difference; empty: none, None: not accepted."""
    if old.decision == new.decision:
        return ""
    return next((known.reason for known, applies in DIFFERENCES.items() if applies(old, new)), None)


def names(rng: random.Random, *values: str, prefixes: tuple[str, ...] = ()) -> list[str]:
    """Return values, or all others than one, or all. Prefixes are never excluded.

    KubeGateway matches everything with several exclusions, which its documentation contradicts.
    """
    match rng.randrange(4):
        case 0:
            return ["*"]
        case 1:
            return ["-" + rng.choice(values)]
        case _:
            choices = values + prefixes
            return rng.sample(choices, rng.randint(1, len(choices)))


VERBS = ("get", "list", "watch", "create", "update", "patch", "delete", "deletecollection")


def random_rule(rng: random.Random) -> Object:
    rule: Object = {
        "verbs": names(rng, *VERBS),
        "apiGroups": names(rng, "", "apps"),
        "resources": names(rng, "pods", "deployments", "nodes", "pods/status"),
        "nonResourceURLs": rng.choice([["*"], ["/version"], ["/healthz/*"], []]),
    }
    if rng.random() < 0.4:
        rule["users"] = names(rng, "alice", "bob", "team-a", prefixes=("team-*", "system:*"))
    if rng.random() < 0.3:
        rule["serviceAccounts"] = [{"namespace": "n", "name": rng.choice(["s", "t"])}]
    if rng.random() < 0.2:
        rule["userGroups"] = rng.sample(["dev", "ops"], 1)
    if rng.random() < 0.2:
        rule["resourceNames"] = names(rng, "one", "two")
    return rule


def random_policy(rng: random.Random) -> Object:
    return {
        "rules": [random_rule(rng) for _ in range(rng.randint(1, 2))],
        "upstreamSubset": [rng.choice(SERVERS)],
        "flowControlSchemaName": rng.choice(["", "none", "many", "free"]),
    }


SCHEMAS: list[Object] = [
    {"name": "none", "maxRequestsInflight": {"max": 0}},
    {"name": "many", "maxRequestsInflight": {"max": 100}},
    {"name": "free", "exempt": {}},
]


METHODS = ("GET", "GET", "GET", "DELETE", "POST", "PUT", "PATCH")


def random_request(rng: random.Random) -> Object:
    core, apps = "/api/v1/namespaces/n", "/apis/apps/v1/namespaces/n"
    user = rng.choice([(), ("alice",), ("bob", "dev"), ("team-a-1", "ops", "dev"), (IMPERSONATOR,)])
    headers: list[tuple[str, str]] = []
    if not user and rng.random() < 0.7:
        token = rng.choice([*TOKENS, "of-nobody"])
        headers.append(("Authorization", f"Bearer {token}"))
    elif user and rng.random() < 0.3:
        if rng.random() < 0.9:
            name = rng.choice(["bob", "system:serviceaccount:n:s", "carol", FAILING])
            headers.append(("Impersonate-User", name))
        if rng.random() < 0.5:
            headers.append(("Impersonate-Group", rng.choice(["dev", "system:masters"])))
        if rng.random() < 0.5:
            key = rng.choice(["scopes", "a%2fb", "a%zz"])
            headers.append((f"Impersonate-Extra-{key}", "v"))
    return {
        "user": user,
        "method": rng.choice(METHODS),
        "target": rng.choice(
            [
                f"{core}/pods", f"{core}/pods/one", f"{core}/pods/two/status", "/api/v1/nodes",
                f"{apps}/deployments", f"{apps}/deployments/one", f"{core}/pods?limit=1",
                f"{core}/pods?fieldSelector=metadata.name%3Done", "/version", "/healthz/etcd",
                "/apis", f"{core}/secrets", f"{core}/pods?watch=true", "/api/v1/watch/nodes",
                f"{apps}/deployments?watch=1&fieldSelector=metadata.name%3Done",
            ]
        ),
        "headers": tuple(headers),
    }  # fmt: skip


@pytest.mark.timeout(600)
async def test_random_requests_have_the_same_outcome(pair: GatewayPair) -> None:
    rng = random.Random(SEED)
    everything = {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "nonResourceURLs": ["*"]}
    manifests = []
    for number in range(CLUSTERS):
        probe = {"rules": [{**everything, "users": ["probe"]}], "upstreamSubset": ["a"]}
        policies = [probe, *(random_policy(rng) for _ in range(rng.randint(2, 5)))]
        manifests.append(pair.manifest(f"cluster-{number}.test", policies, SCHEMAS))
    await pair.serve(manifests)
    statuses, accepted = Counter[int](), Counter[str]()
    wrong: list[str] = []
    for manifest in manifests:
        for _ in range(REQUESTS):
            request = random_request(rng)
            user = request.pop("user")
            old, new = await pair.ask(manifest, *user, **request)
            reason = difference(old, new)
            statuses[new.status] += 1
            accepted[reason or ""] += 1
            if reason is None:
                wrong.append(f"{manifest['metadata']['name']} {user} {request}:\n  {old}\n  {new}")
    print(f"SEED={SEED}", statuses, accepted)
    assert not wrong, f"SEED={SEED}, {len(wrong)} of {CLUSTERS * REQUESTS}:\n" + "\n".join(
        wrong[:20]
    )
    # Each kind of outcome and each accepted difference occurs.
    assert statuses.keys() >= {200, 400, 403, 429, 503}
    assert accepted.keys() == {"", *(known.reason for known in DIFFERENCES)}


async def test_token_buckets_let_as_many_requests_pass(pair: GatewayPair) -> None:
    rule = {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "nonResourceURLs": ["*"]}
    policies = [
        {"rules": [{**rule, "users": ["probe"]}], "upstreamSubset": ["a"]},
        {"rules": [rule], "upstreamSubset": ["b"], "flowControlSchemaName": "few"},
    ]
    few = {"name": "few", "tokenBucket": {"qps": 1, "burst": 10}}
    manifest = pair.manifest("one.test", policies, [few])
    await pair.serve([manifest])
    start = asyncio.get_running_loop().time()
    pairs = [await pair.ask(manifest, "alice") for _ in range(30)]
    refilled = int(asyncio.get_running_loop().time() - start) + 1
    for outcomes in zip(*pairs, strict=True):
        decisions = Counter(outcome.decision[::3] for outcome in outcomes)
        assert decisions.keys() == {(200, ""), (429, "few")}
        assert 10 <= decisions[200, ""] <= 10 + refilled


async def test_failures_have_documented_outcomes(pair: GatewayPair) -> None:
    rule = {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "nonResourceURLs": ["*"]}
    manifest = pair.manifest("one.test", [{"rules": [rule], "upstreamSubset": ["a"]}], [])
    await pair.serve([manifest])

    async def statuses(*user: str, **request: Any) -> tuple[int, int]:
        old, new = await pair.ask(manifest, *user, **request)
        return old.status, new.status

    failing = (("Impersonate-User", FAILING),)
    assert await statuses(IMPERSONATOR, headers=failing) == (403, 503)
    assert await statuses("alice", headers=(("Impersonate-User", "bob"),)) == (403, 403)
    extra = (("Impersonate-User", "bob"), ("Impersonate-Extra-A%zz", "v"))
    old, new = await pair.ask(manifest, IMPERSONATOR, headers=extra)
    assert old.decision == new.decision
    assert ("impersonate-extra-a%25zz", "v") in new.identity
    path = "/api/v1/namespaces/n/configmaps/lost"
    assert await statuses("alice", target=path, method="DELETE") == (502, 502)
    assert Counter(pair.servers["a"].seen) == {("DELETE", path): 2}
    # KubeGateway sends no request again.
    assert await statuses("alice", target=path) == (502, 502)
    assert Counter(pair.servers["a"].seen)["GET", path] > 2
    # A token identifies the client, since KubeGateway asks for no certificate then.
    token = (("Authorization", "Bearer of-alice"),)
    assert await statuses(headers=token, sni=False) == (200, 0)
    await pair.serve_at_gatehouse([manifest], certificate="gateway.test")
    assert await statuses(headers=token, sni=False) == (200, 421)
    assert await statuses(headers=token) == (200, 200)
