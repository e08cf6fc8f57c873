"""State of an Envoy that rejects its first scopes: it would start without them.

The agent lets it start when it has the good part of the first configuration.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import pytest

from fakes.envoy_model import make_resource
from gatehouse.agent.envoy.first_configuration import REJECTION_SECONDS, FirstConfiguration
from gatehouse.agent.envoy.rejection_reasons import has_certain_state
from gatehouse.dataplane.xds.ads_messages import AdsRequest, Response
from gatehouse.dataplane.xds.ads_session import AdsSession
from gatehouse.dataplane.xds.nacks import Nack
from gatehouse.dataplane.xds.resources import (
    CLUSTER_TYPE_URL,
    LISTENER_TYPE_URL,
    SCOPE_TYPE_URL,
    ResourceSet,
    XdsResource,
)
from gatehouse.dataplane.xds.snapshot_cache import WILDCARD, SnapshotCache

BAD = "bad"


IN_USE = "cannot bind '127.0.0.1:80': Address already in use"


def scopes(*names: str) -> list[XdsResource]:
    return [make_resource(SCOPE_TYPE_URL, name, "content") for name in names]


class Envoy:
    """An Envoy whose NACKs of scopes name no resource."""

    def __init__(
        self,
        publication: SnapshotCache | None = None,
        reasons: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """``reasons``: of the NACKs of other resources than scopes, by name."""
        self.publication = publication or SnapshotCache()
        self.session = AdsSession(self.publication)
        self.session.receive(AdsRequest(SCOPE_TYPE_URL))
        self._reasons = reasons

    def answer(self, response: Response) -> None:
        """Accept a response, or reject it for the resource :data:`BAD`."""
        rejected = any(resource.name == BAD for resource in response.resources)
        reasons = {} if response.type_url == SCOPE_TYPE_URL else self._reasons
        nack = Nack("missing )", reasons) if rejected else None
        self.session.receive(AdsRequest(response.type_url, nonce=response.nonce, nack=nack))

    def answer_all(self) -> list[bool]:
        """Answer all responses. Return whether the state is certain before and after each."""
        moments: list[bool] = []
        while (response := self.session.next()) is not None:
            moments.append(has_certain_state(self.session))
            self.answer(response)
            moments.append(has_certain_state(self.session))
        return moments

    def publish(self, *names: str) -> list[bool]:
        """Publish scopes and answer all responses, like :meth:`answer_all`."""
        self.publication.publish(ResourceSet(scopes(*names)))
        return self.answer_all()


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


def test_state_is_not_certain_before_scopes_arrive_from_the_control_plane() -> None:
    """The agent has the listeners already."""
    envoy = Envoy(SnapshotCache(complete=False))
    envoy.publication.publish(ResourceSet())
    assert envoy.session.next() is None
    assert not has_certain_state(envoy.session)
    envoy.publication.mark_absent([(SCOPE_TYPE_URL, WILDCARD)])
    envoy.answer_all()
    assert has_certain_state(envoy.session)


def test_state_is_not_certain_while_scopes_wait_for_their_clusters() -> None:
    envoy = Envoy()
    envoy.session.receive(AdsRequest(CLUSTER_TYPE_URL))
    cluster = make_resource(CLUSTER_TYPE_URL, "app", "content")
    envoy.publication.publish(ResourceSet([cluster, *scopes("a")]))
    response = envoy.session.next()
    assert response is not None
    assert response.type_url == CLUSTER_TYPE_URL
    assert envoy.session.next() is None
    assert not has_certain_state(envoy.session)
    envoy.answer(response)
    envoy.answer_all()
    assert has_certain_state(envoy.session)


@pytest.mark.parametrize(("reason", "certain"), [(IN_USE, True), ("no such cipher", False)])
def test_state_is_certain_beside_a_port_in_use(reason: str, certain: bool) -> None:
    envoy = Envoy(reasons={BAD: reason})
    envoy.session.receive(AdsRequest(LISTENER_TYPE_URL))
    listeners = [make_resource(LISTENER_TYPE_URL, name, "content") for name in ("a", BAD)]
    envoy.publication.publish(ResourceSet([*listeners, *scopes("a")]))
    envoy.answer_all()
    assert has_certain_state(envoy.session) == certain


def missing(first: FirstConfiguration, envoy: Envoy, now: float, *, trial: bool = False) -> str:
    return first.missing(envoy.session, now, trial=trial)


def test_envoy_may_start_at_once_when_it_has_all_of_its_first_configuration() -> None:
    first, envoy = FirstConfiguration(), Envoy()
    envoy.publish("a", "b")
    assert missing(first, envoy, 0.0) == ""


def test_envoy_may_start_with_the_good_part_when_a_rejection_lasts() -> None:
    first, envoy = FirstConfiguration(), Envoy()
    envoy.publish("a", "b", BAD)
    state = envoy.session.subscription(SCOPE_TYPE_URL)
    assert state is not None
    assert set(state.client_versions) == {"a", "b"}
    assert "rejects a part" in missing(first, envoy, 0.0)
    assert "rejects a part" in missing(first, envoy, REJECTION_SECONDS - 0.1)
    assert missing(first, envoy, REJECTION_SECONDS) == ""


def test_envoy_waits_without_limit_until_it_has_answered_the_good_part() -> None:
    """It rejected all scopes together, and gets them again in parts."""
    first, envoy = FirstConfiguration(), Envoy()
    envoy.publication.publish(ResourceSet(scopes("a", BAD)))
    response = envoy.session.next()
    assert response is not None
    assert "not answered" in missing(first, envoy, 0.0)
    envoy.answer(response)
    assert envoy.session.next() is not None
    assert "not answered" in missing(first, envoy, 100 * REJECTION_SECONDS)


def test_envoy_waits_for_the_result_of_a_search_which_gets_all_of_its_time() -> None:
    first, envoy = FirstConfiguration(), Envoy()
    envoy.publish("a", BAD)
    assert "rejects a part" in missing(first, envoy, 0.0)
    end = 100 * REJECTION_SECONDS
    assert "searches" in missing(first, envoy, end, trial=True)
    assert "rejects a part" in missing(first, envoy, end)
    envoy.publish("a")
    assert missing(first, envoy, end) == ""
