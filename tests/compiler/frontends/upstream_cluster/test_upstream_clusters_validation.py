"""Validation of UpstreamClusters by an API server: accepted and rejected objects."""

from __future__ import annotations

import copy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from gatehouse.apis import resources
from gatehouse.apiserver_extension.extension import bundled
from kube_api_server.objects.crds import served_by
from kube_api_server.objects.registry import Registry

Object = dict[str, Any]

ROOT = Path(__file__).parents[4]
REGISTRY = Registry(tuple(resource for one in bundled() for resource in served_by(one)))
A, B = "https://a.example:6443", "https://b.example:6443"
RULE = {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}
PEM = "bm90IGEga2V5"
SECRET = {"namespace": "ns", "name": "s"}
GOOD: Object = {
    "servers": [{"endpoint": A}, {"endpoint": B, "disabled": True}],
    "clientConfig": {"caData": PEM, "bearerToken": PEM},
    "dispatchPolicies": [{"rules": [RULE]}],
}


def refused(spec: Object) -> list[str]:
    """Return the messages with which an object is rejected; empty if it is accepted."""
    served = REGISTRY.of(resources.UPSTREAM_CLUSTERS)
    assert served is not None
    raw = {
        "apiVersion": "proxy.kubegateway.io/v1alpha1",
        "kind": "UpstreamCluster",
        "metadata": {"name": "a.example"},
        "spec": copy.deepcopy(spec),
    }
    assert not served.compiled.prepare(raw), "an unknown field"
    served.complete(raw)
    return [f"{cause.field}: {cause.message}" for cause in served.compiled.validate(raw, None)]


def schemas(*listed: Object, **more: Any) -> Object:
    return {"flowControl": {"flowControlSchemas": list(listed)}, **more}


def policy(**more: Any) -> Object:
    return {"dispatchPolicies": [{"rules": [RULE], **more}]}


TAKEN: dict[str, Object] = {
    "as it is": {},
    "plain text without credentials": {"servers": [{"endpoint": "http://a"}], "clientConfig": {}},
    "insecure": {"clientConfig": {"insecure": True, "bearerToken": PEM}},
    "a key and a certificate": {
        "clientConfig": {"caData": PEM, "keyData": PEM, "certData": PEM, "qps": 1, "burst": 1}
    },
    "a Secret": {"clientConfig": {"secretRef": SECRET}},
    "a Secret and authorities": {"clientConfig": {"secretRef": SECRET, "caData": PEM}},
    "half a pair towards clients, as KubeGateway takes it": {"secureServing": {"keyData": PEM}},
    "all of serving": {
        "secureServing": {
            "keyData": PEM, "certData": PEM, "clientCAData": PEM, "serverNames": ["x.example"]
        }
    },
    "the same server twice": {"servers": [{"endpoint": A}, {"endpoint": A}]},
    "the older spelling": policy(upsteamSubset=[A]),
    "a subset": policy(upstreamSubset=[A, B], strategy="RoundRobin", logMode="on"),
    "no strategy": policy(strategy=""),
    "rules that mean nothing, which the status tells": {"dispatchPolicies": [{"rules": [{}]}]},
    "every kind of schema": schemas(
        {"name": "a", "exempt": {}},
        {"name": "b", "maxRequestsInflight": {}},
        {"name": "c", "tokenBucket": {"qps": 1, "burst": 1}, "strategy": "local"},
        {
            "name": "d",
            "strategy": "globalCount",
            "tokenBucket": {"qps": 1, "burst": 1},
            "globalTokenBucket": {"qps": 2, "burst": 2},
        },
        {
            "name": "e",
            "strategy": "globalAllocate",
            "maxRequestsInflight": {"max": 1},
            "globalMaxRequestsInflight": {"max": 1},
        },
        **policy(flowControlSchemaName="b"),
    ),
    "logging": {"logging": {"mode": "off"}},
}  # fmt: skip

REFUSED: dict[str, tuple[Object, str]] = {
    "no servers": ({"servers": []}, "spec.servers in body should have at least 1 items"),
    "no scheme": ({"servers": [{"endpoint": "a:6443"}]}, "should match '^https?://'"),
    "two schemes": (
        {"servers": [{"endpoint": A}, {"endpoint": "http://b"}]},
        'spec.servers: Invalid value: "array": all endpoints must have the same scheme',
    ),
    "nothing to verify servers by": (
        {"clientConfig": {"bearerToken": PEM}},
        "clientConfig must have caData or secretRef for https, or say insecure",
    ),
    "an empty authority": (
        {"clientConfig": {"bearerToken": PEM, "caData": ""}},
        "clientConfig must have caData or secretRef for https",
    ),
    "no configuration at all": ({"clientConfig": None}, "clientConfig must have caData"),
    "no credentials": (
        {"clientConfig": {"caData": PEM}},
        "clientConfig must have bearerToken, keyData and certData, or secretRef for https",
    ),
    "half a pair": (
        {"clientConfig": {"caData": PEM, "bearerToken": PEM, "keyData": PEM}},
        'spec.clientConfig: Invalid value: "object": keyData and certData belong together',
    ),
    "credentials twice": (
        {"clientConfig": {"bearerToken": PEM, "secretRef": SECRET}},
        "give credentials either here or by secretRef",
    ),
    "a certificate twice": (
        {"secureServing": {"certData": PEM, "secretRef": SECRET}},
        "give the certificate either here or by secretRef",
    ),
    "a Secret without its namespace": (
        {"clientConfig": {"secretRef": {"name": "s"}}},
        "spec.clientConfig.secretRef.namespace: Required value",
    ),
    "not base64": (
        {"clientConfig": {"caData": "!", "bearerToken": PEM}},
        "spec.clientConfig.caData in body must be of type byte",
    ),
    "qps above burst": (
        {"clientConfig": {**GOOD["clientConfig"], "qps": 2, "burst": 1}},
        "burst must be at least qps",
    ),
    "negative qps": (
        {"clientConfig": {**GOOD["clientConfig"], "qps": -1}},
        "spec.clientConfig.qps in body should be greater than or equal to 0",
    ),
    "no policies": ({"dispatchPolicies": []}, "spec.dispatchPolicies in body should have at"),
    "no rules": ({"dispatchPolicies": [{"rules": []}]}, "[0].rules in body should have at least"),
    "another strategy": (policy(strategy="Random"), 'Unsupported value: "Random"'),
    "another switch": (policy(logMode="yes"), 'Unsupported value: "yes"'),
    "a subset of others": (
        policy(upstreamSubset=[A, "https://c"]),
        "upstreamSubset of every policy must be among the endpoints of servers",
    ),
    "a subset of others, in the older spelling": (
        policy(upsteamSubset=["https://c"]),
        "upsteamSubset of every policy must be among the endpoints of servers",
    ),
    "both spellings": (
        policy(upstreamSubset=[A], upsteamSubset=[B]),
        "upstreamSubset and upsteamSubset are one field",
    ),
    "a schema that is not there": (
        policy(flowControlSchemaName="x"),
        "flowControlSchemaName of every policy must be among flowControl.flowControlSchemas",
    ),
    "a schema without a name": (
        schemas({"exempt": {}}),
        "spec.flowControl.flowControlSchemas[0].name: Required value",
    ),
    "a schema twice": (
        schemas({"name": "a", "exempt": {}}, {"name": "a", "exempt": {}}),
        "Duplicate value",
    ),
    "a schema of no kind": (
        schemas({"name": "a"}),
        "exactly one of exempt, maxRequestsInflight, tokenBucket must be given",
    ),
    "a schema of two kinds": (
        schemas({"name": "a", "exempt": {}, "maxRequestsInflight": {"max": 1}}),
        "exactly one of exempt, maxRequestsInflight, tokenBucket must be given",
    ),
    "fewer than none": (
        schemas({"name": "a", "maxRequestsInflight": {"max": -1}}),
        "max in body should be greater than or equal to 0",
    ),
    "no rate": (
        schemas({"name": "a", "tokenBucket": {"qps": 0, "burst": 1}}),
        "qps in body should be greater than or equal to 1",
    ),
    "a bucket below its rate": (
        schemas({"name": "a", "tokenBucket": {"qps": 2, "burst": 1}}),
        "burst must be at least qps",
    ),
    "global without local": (
        schemas({"name": "a", "exempt": {}, "globalMaxRequestsInflight": {"max": 1}}),
        "globalMaxRequestsInflight needs maxRequestsInflight beside it",
    ),
    "a global bucket without a local one": (
        schemas({"name": "a", "exempt": {}, "globalTokenBucket": {"qps": 1, "burst": 1}}),
        "globalTokenBucket needs tokenBucket beside it",
    ),
    "global below local": (
        schemas(
            {
                "name": "a",
                "maxRequestsInflight": {"max": 2},
                "globalMaxRequestsInflight": {"max": 1},
            }
        ),
        "globalMaxRequestsInflight.max must be at least maxRequestsInflight.max",
    ),
    "a global bucket below the local one": (
        schemas(
            {
                "name": "a",
                "tokenBucket": {"qps": 2, "burst": 9},
                "globalTokenBucket": {"qps": 2, "burst": 8},
            }
        ),
        "globalTokenBucket must allow at least what tokenBucket allows",
    ),
    "another way to span": (
        schemas({"name": "a", "exempt": {}, "strategy": "global"}),
        'Unsupported value: "global"',
    ),
    "logging of another kind": ({"logging": {"mode": "some"}}, 'Unsupported value: "some"'),
}


def changed(change: Object) -> Object:
    return {key: value for key, value in {**GOOD, **change}.items() if value is not None}


@pytest.mark.parametrize("title", TAKEN)
def test_valid_object_is_accepted(title: str) -> None:
    assert refused(changed(TAKEN[title])) == []


@pytest.mark.parametrize("title", REFUSED)
def test_invalid_object_is_rejected(title: str) -> None:
    change, words = REFUSED[title]
    message = refused(changed(change))
    assert [text for text in message if words in text], message


def test_defaults_are_those_of_kubegateway() -> None:
    served = REGISTRY.of(resources.UPSTREAM_CLUSTERS)
    raw: Object = {"metadata": {"name": "a"}, "spec": copy.deepcopy(GOOD)}
    served.compiled.prepare(raw)
    served.complete(raw)
    assert raw["spec"]["dispatchPolicies"][0]["strategy"] == "RoundRobin"


def test_example_is_accepted() -> None:
    text = (ROOT / "examples" / "kube-apiservers.yaml").read_text(encoding="utf-8")
    (document,) = (
        document for document in yaml.safe_load_all(text) if document["kind"] == "UpstreamCluster"
    )
    assert refused(document["spec"]) == []


def test_bundled_crds_equal_the_output_of_the_script(tmp_path: Path) -> None:
    script = str(ROOT / "scripts" / "kubegateway.py")
    subprocess.run([sys.executable, script, str(tmp_path)], check=True)
    written = {path.name: path.read_text() for path in tmp_path.iterdir()}
    assert len(written) == 2
    bundled_files = ROOT / "src" / "gatehouse" / "apiserver_extension" / "bundled"
    assert written == {name: (bundled_files / name).read_text() for name in written}
