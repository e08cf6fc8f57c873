"""A client of xDS that speaks with a session, without a connection."""

from __future__ import annotations

from fakes.envoy_model import make_resource
from gatehouse.dataplane.xds.ads_messages import AdsRequest
from gatehouse.dataplane.xds.ads_session import AdsSession
from gatehouse.dataplane.xds.nacks import Nack
from gatehouse.dataplane.xds.resources import (
    CLUSTER_TYPE_URL,
    ResourceSet,
    XdsResource,
)
from gatehouse.dataplane.xds.snapshot_cache import SnapshotCache

A, B = make_resource(CLUSTER_TYPE_URL, "a", "one"), make_resource(CLUSTER_TYPE_URL, "b", "one")
A2 = make_resource(CLUSTER_TYPE_URL, "a", "two")


class Client:
    """Says things to a conversation about a publication."""

    def __init__(self, *resources: XdsResource) -> None:
        self.publication = SnapshotCache()
        self.publish(*resources)
        self.conversation = AdsSession(self.publication)

    def publish(self, *resources: XdsResource) -> None:
        self.publication.publish(ResourceSet(resources))

    def ask(self, type_url: str, *names: str, **more: object) -> None:
        self.conversation.receive(AdsRequest(type_url, subscribe=names, **more))  # type: ignore[arg-type]

    def hears(self) -> tuple[list[str], list[str]]:
        """Names of resources, and names of what is removed, in the next response."""
        self.last = self.conversation.next()
        if self.last is None:
            return [], []
        return [resource.name for resource in self.last.resources], sorted(self.last.removed)

    def accept(self) -> None:
        assert self.last is not None
        self.conversation.receive(AdsRequest(self.last.type_url, nonce=self.last.nonce))

    def refuse(self, message: str, **reasons: str) -> None:
        assert self.last is not None
        nack = Nack(message, reasons)
        self.conversation.receive(AdsRequest(self.last.type_url, nonce=self.last.nonce, nack=nack))

    def reasons(self) -> dict[str, str]:
        return {
            rejected_resource.resource.name: rejected_resource.reason
            for rejected_resource in self.conversation.rejected_resources()
        }
