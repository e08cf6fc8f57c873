"""Worlds to publish, at random, and whether an Envoy ended with one."""

from __future__ import annotations

from collections.abc import Iterable

from hypothesis import strategies as st

from fakes.envoy_model import Envoy, make_resource, rejectable
from gatehouse.dataplane.xds.resources import (
    CLUSTER_TYPE_URL,
    ENDPOINTS_TYPE_URL,
    LISTENER_TYPE_URL,
    ROUTES_TYPE_URL,
    ResourceSet,
    XdsResource,
)

NAMES = ("a", "b", "c")
GOOD = st.sampled_from(["one", "two"])
TEXTS = st.one_of(GOOD, GOOD, GOOD, st.sampled_from(["bad", "bad two", "ugly"]))


@st.composite
def worlds(draw: st.DrawFn) -> ResourceSet:
    """Listeners that lead to clusters that are there; some of it is refused."""
    clusters = draw(st.dictionaries(st.sampled_from(NAMES), TEXTS, max_size=3))
    listeners = draw(st.dictionaries(st.sampled_from(["l", "m"]), GOOD, max_size=2))
    result: list[XdsResource] = []
    for name, text in clusters.items():
        result.append(make_resource(CLUSTER_TYPE_URL, name, text))
        if draw(st.booleans()) or draw(st.booleans()):
            result.append(make_resource(ENDPOINTS_TYPE_URL, name, draw(TEXTS)))
    for name, text in listeners.items():
        result.append(make_resource(LISTENER_TYPE_URL, name, f"routes-{name}|{text}"))
        leads = draw(st.lists(st.sampled_from(sorted(clusters)), unique=True)) if clusters else []
        result.append(make_resource(ROUTES_TYPE_URL, f"routes-{name}", f"{','.join(leads)}|{text}"))
    return ResourceSet(result)


def check(envoy: Envoy, world: ResourceSet, refused: Iterable[XdsResource]) -> None:
    """The client has what is published, less what it refuses."""
    dismissed = {resource.key for resource in refused}
    assert {key for key in dismissed if not rejectable(world.by_type[key[0]][key[1]])} == set()
    for type_url in (CLUSTER_TYPE_URL, LISTENER_TYPE_URL):
        published = world.by_type.get(type_url, {})
        assert envoy.has[type_url].keys() <= published.keys()
        for name, resource in published.items():
            if rejectable(resource):
                assert resource.key in dismissed
                assert envoy.has[type_url].get(name, ("",))[0] != resource.version
            else:
                assert envoy.has[type_url][name][0] == resource.version
    for type_url in (ENDPOINTS_TYPE_URL, ROUTES_TYPE_URL):
        for name in envoy._requested_names(type_url):
            result = world.get(type_url, name)
            if result is not None and not rejectable(result):
                assert envoy.has[type_url][name][0] == result.version
