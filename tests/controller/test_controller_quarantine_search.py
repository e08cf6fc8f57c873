"""Search of a quarantine for objects that are no HTTP routes, and what it serves meanwhile."""

from __future__ import annotations

import pytest

from fakes.quarantine_loop import to_publish
from fakes.search_world import BAD, World, origin, served
from gatehouse.compiler.ir import http
from gatehouse.compiler.ir.unsupported import Suspect

SHARED = {
    "parameters": ("NginxProxy", "parameters"),
    "snippets of the Gateway": ("SnippetsPolicy", "all"),
    "client settings of the Gateway": ("ClientSettingsPolicy", "limits"),
    "settings of an upstream": ("UpstreamSettingsPolicy", "balancing"),
    "sessions of a Service": ("XBackendTrafficPolicy", "sessions"),
    "sessions of another Service": ("XBackendTrafficPolicy", "other-sessions"),
    "certificate": ("Secret", "tls"),
    "L4 route": ("TCPRoute", "l4"),
}


@pytest.mark.parametrize("existing", [True, False])
@pytest.mark.parametrize("case", SHARED)
def test_search_leaves_out_only_shared_object(case: str, existing: bool) -> None:
    """A good object of each other kind and two good routes change at the same time."""
    world = World()
    world.routes = {"old": ("", ""), "filtered": ("", "shared")}
    world.put("SnippetsFilter", "shared", "good")
    if existing:
        for kind, name in SHARED.values():
            world.put(kind, name, "good")
    assert world.settle() == ""
    world.accepted.clear()
    for entry, (kind, name) in SHARED.items():
        world.put(kind, name, BAD if entry == case else "better")
    world.put("SnippetsFilter", "shared", "better")
    world.routes["new"] = ("", "")
    assert world.settle() == ""
    kind, name = SHARED[case]
    assert world.left_out == {f"{kind} {name}"}
    assert served(world.serving) == {"old", "filtered", "new"}
    for step in world.accepted:
        assert served(step) >= {"old", "filtered"}, "a step serves less than before"
    for entry, (changed, _) in SHARED.items():
        if entry != case and changed != "ClientSettingsPolicy":
            assert "better" in repr(world.serving), entry
    world.put(kind, name, "repaired")
    for kind, name in SHARED.values():
        world.put(kind, name, "repaired")
    assert world.settle() == ""
    assert world.left_out == set()
    assert world.quarantine.inputs == {}


def test_search_leaves_out_filter_and_fails_only_routes_that_use_it() -> None:
    world = World()
    world.routes = {f"r{number}": ("", "") for number in range(6)}
    world.settle()
    world.put("SnippetsFilter", "f", BAD)
    world.put("SnippetsFilter", "g", "good")
    world.routes |= {"uses": ("", "f"), "good": ("", "g"), "later": ("", "")}
    assert world.settle() == ""
    assert "SnippetsFilter f" in world.left_out
    assert "SnippetsFilter g" not in world.left_out
    assert served(world.serving) == {*world.routes} - {"uses"}


def test_search_names_changed_filter_and_not_its_unchanged_routes() -> None:
    world = World()
    world.routes = {f"r{number}": ("", "f") for number in range(8)}
    world.put("SnippetsFilter", "f", "good")
    world.settle()
    world.put("SnippetsFilter", "f", BAD)
    assert world.settle() == ""
    assert world.left_out == {"SnippetsFilter f"}


def test_search_finds_bad_objects_of_several_kinds() -> None:
    world = World()
    world.routes = {"old": ("", "")}
    world.settle()
    world.put("NginxProxy", "parameters", BAD)
    world.put("TCPRoute", "l4", BAD)
    world.put("TCPRoute", "other", "good")
    world.routes |= {"bad": (BAD, ""), "new": ("", "")}
    assert world.settle() == ""
    assert world.left_out == {"NginxProxy parameters", "TCPRoute l4", "HTTPRoute bad"}
    assert served(world.serving) == {"old", "new"}
    hosts = [host for listener in world.serving.l4_listeners for host in listener.hosts]
    assert [bool(host.backends) for host in hosts] == [False, True]


def test_object_that_an_error_names_wrongly_is_used_again_and_the_cause_is_searched() -> None:
    world = World()
    world.put("NginxProxy", "parameters", "good")
    world.routes = {"old": ("", "")}
    world.settle()
    world.named = [Suspect(origin("NginxProxy", "parameters"))]
    world.routes["bad"] = (BAD, "")
    assert world.settle() == ""
    assert world.left_out == {"HTTPRoute bad"}
    assert world.serving.settings.nginx.error_level == "good"


def test_rejected_policy_is_invalid_until_its_spec_changes() -> None:
    world = World()
    world.routes = {"old": ("", "")}
    world.named = [Suspect(world.put("ClientSettingsPolicy", "limits", BAD))]
    assert world.settle() == ""
    assert world.left_out == {"ClientSettingsPolicy limits"}
    assert served(world.serving) == {"old"}
    world.put("ClientSettingsPolicy", "limits", "good")
    assert world.settle() == ""
    assert world.left_out == set()


def test_rejection_without_a_cause_ends_with_the_newest_configuration() -> None:
    """The proxy rejects everything, so that its error about the desired version is reported."""
    world = World()
    world.routes = {"old": ("", "")}
    world.settle()
    published: list[str] = []
    quarantine, world.routes["new"] = world.quarantine, ("", "")
    rejection = ""
    for _ in range(20):
        compiled = world.compile()
        gateway = to_publish(quarantine, compiled)
        quarantine.published(repr(gateway), gateway, compiled)
        # An instance still reports the last rejection when the next version is published.
        changed = quarantine.rejected(rejection, "disk full", "nginx/1") if rejection else False
        if published[-1:] != [repr(gateway)]:
            published.append(repr(gateway))
        rejection = repr(gateway)
        changed |= quarantine.rejected(rejection, "disk full", "nginx/1")
        if not changed:
            break
    assert quarantine.inputs == {}
    assert published[-1] == repr(world.compile())
    assert len(published) == 3, "rejected, everything held back, rejected"


@pytest.mark.parametrize("arriving", SHARED)
@pytest.mark.parametrize("text", [BAD, "better"])
@pytest.mark.parametrize("case", SHARED)
def test_object_that_changes_during_a_search_is_found_if_it_is_bad(
    case: str, arriving: str, text: str
) -> None:
    world = World()
    world.routes = {"old": ("", "")}
    for kind, name in SHARED.values():
        world.put(kind, name, "good")
    assert world.settle() == ""
    world.accepted.clear()
    world.put(*SHARED[case], BAD)
    world.routes["new"] = ("", "")
    if arriving != case:
        world.arriving = [lambda: world.put(*SHARED[arriving], text)]
    assert world.settle() == ""
    assert not world.arriving
    changed = {case: BAD, **({arriving: text} if arriving != case else {})}
    assert world.left_out == {
        " ".join(SHARED[entry]) for entry, content in changed.items() if content == BAD
    }
    assert served(world.serving) == {"old", "new"}
    for step in world.accepted:
        assert served(step) >= {"old"}, "a step serves less than before"


def test_object_that_is_repaired_during_a_search_is_served() -> None:
    world = World()
    world.routes = {"old": ("", "")}
    world.settle()
    world.routes |= {"bad": (BAD, ""), "new": ("", "")}
    world.arriving = [lambda: world.routes.update(bad=("repaired", ""))]
    assert world.settle() == ""
    assert world.left_out == set()
    assert served(world.serving) == {"old", "bad", "new"}


def test_endpoints_change_during_a_search() -> None:
    world = World()
    world.routes = {"old": ("", "")}
    world.settle()
    world.routes["bad"] = (BAD, "")
    compiled = world.compile()
    world.quarantine.published(repr(compiled), compiled)
    assert world.quarantine.rejected(repr(compiled), "bad", "nginx/1")
    world.endpoints = (http.Endpoint("10.0.0.1", 80),)
    published = to_publish(world.quarantine, world.compile())
    assert served(published) == {"old"}
    assert next(iter(published.clusters)).endpoints == world.endpoints
