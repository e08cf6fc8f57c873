"""State of an Envoy that rejects its first scopes: it may call itself ready without them.

The agent becomes ready when Envoy has the good part of the first configuration.
"""

from __future__ import annotations

from fakes.envoy_model import make_resource
from gatehouse.agent.envoy.first_configuration import REJECTION_SECONDS, FirstConfiguration
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


def missing(first: FirstConfiguration, envoy: Envoy, now: float, *, trial: bool = False) -> str:
    return first.missing(envoy.session, now, trial=trial)


def test_agent_is_ready_at_once_when_envoy_has_all_of_its_first_configuration() -> None:
    first, envoy = FirstConfiguration(complete=False), Envoy()
    envoy.publish("a", "b")
    assert missing(first, envoy, 0.0) == ""


def test_agent_is_ready_with_the_good_part_when_a_rejection_lasts() -> None:
    first, envoy = FirstConfiguration(complete=False), Envoy()
    envoy.publish("a", "b", BAD)
    state = envoy.session.subscription(SCOPE_TYPE_URL)
    assert state is not None
    assert set(state.client_versions) == {"a", "b"}
    assert "rejects a part" in missing(first, envoy, 0.0)
    assert "rejects a part" in missing(first, envoy, REJECTION_SECONDS - 0.1)
    assert missing(first, envoy, REJECTION_SECONDS) == ""


def test_agent_waits_without_limit_for_answers_to_the_good_part() -> None:
    """Envoy rejected all scopes together, and gets them again in parts."""
    first, envoy = FirstConfiguration(complete=False), Envoy()
    resources = [make_resource(SCOPE_TYPE_URL, name, "content") for name in ("a", BAD)]
    envoy.publication.publish(ResourceSet(resources))
    response = envoy.session.next()
    assert response is not None
    assert "not answered" in missing(first, envoy, 0.0)
    nack = Nack("missing )", {})
    envoy.session.receive(AdsRequest(response.type_url, nonce=response.nonce, nack=nack))
    assert envoy.session.next() is not None
    assert "not answered" in missing(first, envoy, 100 * REJECTION_SECONDS)


def test_agent_waits_for_the_result_of_a_search_and_gives_it_all_of_its_time() -> None:
    first, envoy = FirstConfiguration(complete=False), Envoy()
    envoy.publish("a", BAD)
    assert "rejects a part" in missing(first, envoy, 0.0)
    end = 100 * REJECTION_SECONDS
    assert "searches" in missing(first, envoy, end, trial=True)
    assert "rejects a part" in missing(first, envoy, end)
    envoy.publish("a")
    assert missing(first, envoy, end) == ""


def test_agent_that_was_ready_stays_so_when_envoy_rejects_a_later_version() -> None:
    first, envoy = FirstConfiguration(complete=False), Envoy()
    envoy.publish("a")
    first.complete()
    envoy.publish("a", BAD)
    assert missing(first, envoy, 0.0) == ""
    assert missing(FirstConfiguration(complete=True), envoy, 0.0) == ""
