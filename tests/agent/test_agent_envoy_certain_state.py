"""State of an Envoy that rejects its first scopes: it may call itself ready without them."""

from __future__ import annotations

from fakes.envoy_model import make_resource
from gatehouse.agent.envoy.rejection_reasons import has_certain_state
from gatehouse.dataplane.xds.ads_messages import AdsRequest
from gatehouse.dataplane.xds.ads_session import AdsSession
from gatehouse.dataplane.xds.nacks import Nack
from gatehouse.dataplane.xds.resources import SCOPE_TYPE_URL, ResourceSet
from gatehouse.dataplane.xds.snapshot_cache import SnapshotCache

BAD = "bad"


class Envoy:
    """An Envoy whose NACKs name no resource."""

    def __init__(self) -> None:
        self.publication = SnapshotCache()
        self.session = AdsSession(self.publication)
        self.session.receive(AdsRequest(SCOPE_TYPE_URL))

    def publish(self, *scopes: str) -> list[bool]:
        """Publish scopes and answer all responses.

        Return whether the state is certain before and after each answer.
        """
        resources = [make_resource(SCOPE_TYPE_URL, name, "content") for name in scopes]
        self.publication.publish(ResourceSet(resources))
        moments: list[bool] = []
        while (response := self.session.next()) is not None:
            moments.append(has_certain_state(self.session))
            rejected = any(resource.name == BAD for resource in response.resources)
            nack = Nack("missing )", {}) if rejected else None
            self.session.receive(AdsRequest(response.type_url, nonce=response.nonce, nack=nack))
            moments.append(has_certain_state(self.session))
        return moments


def test_state_is_not_certain_while_scopes_of_a_rejected_response_are_sent_again() -> None:
    envoy = Envoy()
    moments = envoy.publish("a", "b", "c", BAD)
    assert len(moments) > 4
    assert not any(moments)


def test_state_is_certain_when_the_rejected_scope_is_gone() -> None:
    envoy = Envoy()
    envoy.publish("a", BAD)
    envoy.publish("a")
    assert has_certain_state(envoy.session)


def test_state_is_not_certain_before_the_first_scopes_are_answered() -> None:
    assert Envoy().publish("a") == [False, True]
