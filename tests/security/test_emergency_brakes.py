"""Emergency brakes of UpstreamClusters: feature gates and limits of zero.

An administrator stops the requests for a cluster in a hurry. A typo, a restart or an edit about
something else must not release the brake.
"""

from __future__ import annotations

import pytest

from fakes.inprocess import Server
from fakes.ownership_estate import GATEWAY, Estate
from gatehouse.apis.feature_gates import parse
from gatehouse.incremental.query import Key

GATES = "proxy.kubegateway.io/feature-gates"
KEY: Key = ("UpstreamCluster", "", "a.test")
CLUSTERS = "/apis/proxy.kubegateway.io/v1alpha1/upstreamclusters"
DENY = "DenyAllRequests=true"


def is_denied(estate: Estate) -> bool:
    compiled = estate.run().gateways[GATEWAY].gateway
    assert compiled is not None
    (cluster,) = compiled.api_listeners[0].clusters
    return cluster.denied


def annotate(estate: Estate, text: str | None) -> None:
    estate.cluster("a.test", annotations={} if text is None else {GATES: text})


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize(
    "text",
    [
        "DenyAllRequests=maybe",
        "DenyAllRequests",
        "DenyAllRequest=false",
        "Unknown=true",
        "GlobalRateLimiter=true,DenyAllRequests=",
        "DenyAllRequests=false,DenyAllRequests=true",
        "DenyAllRequests=false,DenyAllRequests=no",
    ],
)
def test_typo_does_not_release_the_brake(text: str, restarts: bool) -> None:
    """Who: an administrator with a typo. Through: the annotation.

    Must hold: all requests stay denied, also after a restart, and a condition says so.
    """
    estate = Estate()
    annotate(estate, DENY)
    assert is_denied(estate)
    annotate(estate, text)
    assert is_denied(estate)
    estate.write_statuses()
    if restarts:
        estate.restart()
    assert is_denied(estate)
    message = estate.condition(KEY, "PartiallyInvalid")[2]
    assert "DenyAllRequests stays on: the annotation has no valid value for it" in message
    annotate(estate, "DenyAllRequests=false")
    assert not is_denied(estate)
    assert estate.condition(KEY, "PartiallyInvalid") == ("", "", "")
    estate.write_statuses()
    assert "featureGates" not in estate.objects[KEY]["status"]


@pytest.mark.parametrize("text", [None, "", "GlobalRateLimiter=true", "DenyAllRequests=false"])
def test_valid_annotation_releases_the_brake(text: str | None) -> None:
    estate = Estate()
    annotate(estate, DENY)
    assert is_denied(estate)
    annotate(estate, text)
    assert not is_denied(estate)


def test_typo_does_not_pull_the_brake() -> None:
    estate = Estate()
    annotate(estate, "DenyAllRequests=yes")
    assert not is_denied(estate)
    assert "must be true or false" in estate.condition(KEY, "PartiallyInvalid")[2]


def test_other_gates_keep_their_value_only_in_an_invalid_annotation() -> None:
    estate = Estate()
    annotate(estate, "GlobalRateLimiter=true")
    estate.run()
    annotate(estate, "GlobalRateLimiter=true,Unknown=true")
    assert estate.status(KEY)["featureGates"] == ["GlobalRateLimiter"]
    annotate(estate, "Unknown=true")
    assert estate.status(KEY)["featureGates"] == ["GlobalRateLimiter"]
    annotate(estate, "Tracing=false")
    assert "featureGates" not in estate.status(KEY)


def test_brake_stays_on_while_the_object_cannot_be_decoded() -> None:
    """Who: an author of a spec with wrong types, where another CRD accepts it."""
    estate = Estate()
    annotate(estate, DENY)
    estate.run()
    estate.put(KEY, spec={"servers": "nonsense"}, metadata={"annotations": {}})
    estate.run()
    annotate(estate, "DenyAllRequests=maybe")
    assert is_denied(estate)


def test_deleted_object_leaves_no_brake() -> None:
    estate = Estate()
    annotate(estate, DENY)
    estate.run()
    estate.delete(KEY)
    annotate(estate, None)
    assert not is_denied(estate)


def cluster(text: str | None) -> dict[str, object]:
    rule = {"verbs": ["*"], "nonResourceURLs": ["*"]}
    spec = {"servers": [{"endpoint": "http://a"}], "dispatchPolicies": [{"rules": [rule]}]}
    metadata = {"name": "a.test", "annotations": {GATES: text} if text is not None else {}}
    kind = {"apiVersion": "proxy.kubegateway.io/v1alpha1", "kind": "UpstreamCluster"}
    return {**kind, "metadata": metadata, "spec": spec}


async def test_typo_in_feature_gates_is_rejected_at_admission(server: Server) -> None:
    """Who: an administrator with a typo. Must hold: kubectl fails, and the annotation stays."""
    patch = {"Content-Type": "application/merge-patch+json"}
    async with server.raw() as http:
        async with http.post(CLUSTERS, json=cluster("DenyAllRequests=maybe")) as response:
            assert response.status == 422
        async with http.post(CLUSTERS, json=cluster(DENY)) as response:
            assert response.status == 201, await response.text()
        for text in ("DenyAllRequests=maybe", "Unknown=true"):
            body = {"metadata": {"annotations": {GATES: text}}}
            async with http.patch(f"{CLUSTERS}/a.test", json=body, headers=patch) as response:
                answer = await response.json()
            assert (response.status, answer["reason"]) == (422, "Invalid")
            (cause,) = answer["details"]["causes"]
            assert cause["field"] == f"metadata.annotations[{GATES}]"
            assert parse(text).problems[0] in cause["message"]
        async with http.get(f"{CLUSTERS}/a.test") as response:
            assert (await response.json())["metadata"]["annotations"][GATES] == DENY
