"""Health reports of an Envoy's agent among its ADS requests."""

from __future__ import annotations

from gatehouse.dataplane.unready_servers import MAX_SERVERS, MAX_UNREADY_REASON_CHARACTERS
from gatehouse.dataplane.xds import delta
from gatehouse.dataplane.xds.ads_messages import AdsRequest
from gatehouse.dataplane.xds.ads_session import AdsSession
from gatehouse.dataplane.xds.delta import DeltaStream
from gatehouse.dataplane.xds.resources import CLUSTER_TYPE_URL, ResourceSet, XdsResource
from gatehouse.dataplane.xds.snapshot_cache import SnapshotCache


def publication() -> SnapshotCache:
    cache = SnapshotCache()
    cache.publish(ResourceSet([XdsResource.make(CLUSTER_TYPE_URL, "web", b"body")]))
    return cache


def test_health_report_is_kept_until_the_next() -> None:
    stream = DeltaStream(publication())
    stream.receive(delta.health_request("the listener does not respond"))
    assert stream.conversation.unhealthy == "the listener does not respond"
    stream.receive(DeltaStream.Message(type_url=CLUSTER_TYPE_URL, resource_names_subscribe=["*"]))
    assert stream.conversation.unhealthy == "the listener does not respond"
    stream.receive(delta.health_request(""))
    assert stream.conversation.unhealthy == ""


def test_health_report_does_not_disturb_older_control_plane() -> None:
    """Pass the report on as a request, as a control plane does that does not know it."""
    session = AdsSession(publication())
    session.receive(AdsRequest(CLUSTER_TYPE_URL, subscribe=("*",)))
    for reason in ("the listener does not respond", ""):
        session.receive(delta.parse_delta_request(delta.health_request(reason)))
    response = session.next()
    assert response is not None
    assert response.type_url == CLUSTER_TYPE_URL
    session.receive(AdsRequest(CLUSTER_TYPE_URL, nonce=response.nonce))
    assert session.next() is None
    assert session.confirmed == session.target_version != ""


def test_unready_servers_are_reported_beside_health() -> None:
    stream = DeltaStream(publication())
    unready = {"a.example": {"10.0.0.1:6443": "connection refused"}}
    stream.receive(delta.health_request("", unready))
    assert (stream.conversation.unhealthy, stream.conversation.unready_servers) == ("", unready)
    stream.receive(delta.health_request("stopped", unready))
    assert stream.conversation.unhealthy == "stopped"
    assert stream.conversation.unready_servers == unready
    many = {"a.example": {f"10.0.0.1:{port}": "x" * 10_000 for port in range(1000)}}
    stream.receive(delta.health_request("", many))
    reasons = stream.conversation.unready_servers["a.example"]
    assert len(reasons) == MAX_SERVERS
    assert {len(reason) for reason in reasons.values()} == {MAX_UNREADY_REASON_CHARACTERS}
    stream.receive(delta.health_request(""))
    assert stream.conversation.unready_servers == {}
