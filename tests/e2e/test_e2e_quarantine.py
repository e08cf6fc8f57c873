"""Objects that NGINX rejects are left out; everything else is served at once."""

from __future__ import annotations

import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fakes.installation import (
    PORT,
    Installation,
    address,
    apply,
    condition,
    get,
    hello,
    holds,
    route,
    traffic,
)
from fakes.installation_fixtures import running_installation
from fakes.kinds import resource_of
from fakes.patience import until
from fakes.strict_nginx import REFUSED, environment_with_strict_nginx
from gatehouse.apis import resources
from gatehouse.kube import client as kube

pytestmark = pytest.mark.process

HOST = "shared.example"


@pytest.fixture(scope="module")
def installation() -> Iterator[Installation]:
    """Return an installation whose NGINX rejects expressions that the compiler accepts."""
    with tempfile.TemporaryDirectory(prefix="gh-nginx-") as directory:
        environment = environment_with_strict_nginx(Path(directory))
        with running_installation(environment=environment) as started:
            yield started


def matching(name: str, pattern: str) -> dict[str, Any]:
    """Return a route with a regular expression, and a rule that is always valid."""
    bad = {
        "matches": [{"path": {"type": "RegularExpression", "value": pattern}}],
        "backendRefs": [{"name": "app", "port": 80}],
    }
    route_object = shared(route(name, f"/{name}-good"))
    route_object["spec"]["rules"].append(bad)
    return route_object


def shared(route_object: dict[str, Any]) -> dict[str, Any]:
    """Return a route for the hostname of all routes here, of which none matches every path."""
    route_object["spec"]["hostnames"] = [HOST]
    return route_object


async def ready(client: kube.Client) -> str:
    """Return the address of the example's Gateway, which answers."""
    await apply(client, hello())
    await holds(client, "Gateway", "web", "Programmed")
    where = await address(client)

    async def answers() -> bool:
        return (await get(where, "/"))[0] == 200

    await until(answers)
    # No route matches every path, so that only the route of a path answers.
    await apply(client, [route("app", "/app")])
    await served(where, "/none", 404)
    return where


async def served(where: str, path: str, status: int = 200) -> None:
    """Wait until a path answers with a status."""

    async def answers() -> bool:
        return (await get(where, path, Host=HOST))[0] == status

    await until(answers)


async def test_rejected_expression_is_left_out_and_reported(
    installation: Installation, client: kube.Client, backends: None
) -> None:
    where = await ready(client)
    await apply(client, [matching("bad", f"/{REFUSED}")])
    await apply(client, [shared(route("after", "/after"))])
    await served(where, "/after")
    await served(where, "/bad-good")
    assert (await get(where, "/app"))[0] == 200

    async def reported() -> bool:
        result = await condition(client, "HTTPRoute", "bad", "PartiallyInvalid")
        return result is not None and result["status"] == "True"

    await until(reported)
    result = await condition(client, "HTTPRoute", "bad", "PartiallyInvalid")
    assert result is not None
    assert result["message"].startswith("Dropped Rule: rules[1]: match rejected by nginx/")
    assert "pcre2_compile() failed: too old" in result["message"]
    programmed = await condition(client, "Gateway", "web", "Programmed")
    assert programmed is not None
    assert programmed["status"] == "True"
    assert "1 object left out" in programmed["message"]
    assert "HTTPRoute default/bad" in programmed["message"]
    events = (await client.list(resources.EVENTS, "default")).items
    assert any(
        event["reason"] == "ConfigurationRejected" and "HTTPRoute default/bad" in event["message"]
        for event in events
    )
    # The object is tried again when it changes.
    await apply(client, [matching("bad", "/x{6}")])
    await served(where, "/xxxxxx")

    async def repaired() -> bool:
        return await condition(client, "HTTPRoute", "bad", "PartiallyInvalid") is None

    await until(repaired)


QUOTED = {
    "port": f"/bind\\(\\) to x:{PORT} failed {REFUSED}",
    "file": f"/ in gatehouse/http.conf:1 {REFUSED}",
    "credential": f"/gatehouse/tls/x {REFUSED}",
}
"""Expressions that look like other messages of NGINX, which quotes them."""


@pytest.mark.parametrize("case", QUOTED)
async def test_quoted_expression_costs_only_its_own_match(
    installation: Installation, client: kube.Client, backends: None, case: str
) -> None:
    where = await ready(client)
    async with traffic(where, "/app") as answers:
        await apply(client, [matching(f"quoted-{case}", QUOTED[case])])
        await served(where, f"/quoted-{case}-good")
        await until_left_out(client, f"quoted-{case}")
        await apply(client, [shared(route(f"after-{case}", f"/after-quoted-{case}"))])
        await served(where, f"/after-quoted-{case}")
        programmed = await condition(client, "Gateway", "web", "Programmed")
        assert programmed is not None
        assert "1 object left out" in programmed["message"], programmed
        await client.delete(resources.HTTP_ROUTES, f"quoted-{case}", "default")
    assert set(answers) == {"200"}, answers


def filtering(name: str, context: str, value: str) -> list[dict[str, Any]]:
    """Return a SnippetsFilter and a route that uses it in one of two rules."""
    reference = {"group": "gateway.nginx.org", "kind": "SnippetsFilter", "name": name}
    route_object = shared(route(name, f"/{name}-good"))
    route_object["spec"]["rules"].append(
        {
            "matches": [{"path": {"value": f"/{name}"}}],
            "filters": [{"type": "ExtensionRef", "extensionRef": reference}],
            "backendRefs": [{"name": "app", "port": 80}],
        }
    )
    snippet = {
        "apiVersion": "gateway.nginx.org/v1alpha1",
        "kind": "SnippetsFilter",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"snippets": [{"context": context, "value": value}]},
    }
    return [snippet, route_object]


CASES = {
    "location": ("http.server.location", "no_such_directive on;"),
    "server": ("http.server", "no_such_directive on;"),
    "http": ("http", "no_such_directive on;"),
    "main": ("main", "no_such_directive on;"),
    # NGINX names no file for these.
    "variable": ("http.server.location", "add_header X-Seen $no_such_variable;"),
    "http-variable": ("http", "add_header X-Seen $no_such_variable;"),
    # Nothing in these errors leads to an object.
    "location-log": ("http.server.location", "access_log /no/such/directory/log;"),
    "http-log": ("http", "access_log /no/such/directory/log;"),
    "main-log": ("main", "error_log /no/such/directory/log;"),
}


@pytest.mark.parametrize("case", CASES)
async def test_rejected_snippet_fails_only_the_rules_that_use_it(
    installation: Installation, client: kube.Client, backends: None, case: str
) -> None:
    where = await ready(client)
    async with traffic(where, "/app") as answers:
        await apply(client, filtering(f"bad-{case}", *CASES[case]))
        await apply(client, [shared(route(f"after-{case}", f"/after-{case}"))])
        await served(where, f"/after-{case}")
        await served(where, f"/bad-{case}-good")
        await served(where, f"/bad-{case}", 500)
        programmed = await holds(client, "Gateway", "web", "Programmed")
        await until_left_out(client, f"bad-{case}")
        assert programmed["status"] == "True"
        await apply(client, filtering(f"bad-{case}", "http.server.location", "add_header X-A b;"))
        await served(where, f"/bad-{case}")
    assert set(answers) == {"200"}, answers


async def test_rejected_policy_of_the_gateway_affects_no_route(
    installation: Installation, client: kube.Client, backends: None
) -> None:
    """The policy changes the configuration of every route, and the error names nothing."""
    where = await ready(client)
    target = {"group": "gateway.networking.k8s.io", "kind": "Gateway", "name": "web"}
    bad = {
        "apiVersion": "gateway.nginx.org/v1alpha1",
        "kind": "SnippetsPolicy",
        "metadata": {"name": "bad-policy", "namespace": "default"},
        "spec": {
            "targetRefs": [target],
            "snippets": [
                {
                    "context": "http.server.location",
                    "value": "access_log /no/such/directory/log;",
                }
            ],
        },
    }
    async with traffic(where, "/app") as answers:
        await apply(client, [bad, shared(route("after-policy", "/after-policy"))])
        await served(where, "/after-policy")
        await until_left_out(client, "bad-policy")
        result = await condition(client, "Gateway", "web", "Programmed")
        assert result is not None
        assert "1 object left out" in result["message"], result
    assert set(answers) == {"200"}, answers
    await client.delete(resources.SNIPPETS_POLICIES, "bad-policy", "default")


async def until_left_out(client: kube.Client, name: str) -> None:
    """Wait until the Gateway names an object that is left out."""

    async def named() -> bool:
        result = await condition(client, "Gateway", "web", "Programmed")
        return result is not None and f"default/{name}" in result["message"]

    await until(named)


async def test_rejected_object_stays_left_out_after_controller_and_agent_restart(
    installation: Installation, client: kube.Client, backends: None
) -> None:
    where = await ready(client)
    await apply(client, [matching("still-bad", f"/{REFUSED}"), shared(route("beside", "/beside"))])
    await served(where, "/beside")
    await until_left_out(client, "still-bad")
    async with traffic(where, "/app") as answers:
        installation.part("controller").signal(signal.SIGKILL)
        await apply(client, [shared(route("later", "/later"))])
        await served(where, "/later")
        await until_left_out(client, "still-bad")
        installation.agent().signal(signal.SIGKILL)
        await apply(client, [shared(route("latest", "/latest"))])
        await served(where, "/latest")
        await served(where, "/still-bad-good")
    assert set(answers) == {"200"}, answers


@pytest.mark.parametrize("context", ["http", "http.server.location"])
async def test_controller_restart_costs_no_request_when_a_rejection_names_nothing(
    installation: Installation, client: kube.Client, backends: None, context: str
) -> None:
    """A new controller knows no good configuration, and must not search by removing routes."""
    where = await ready(client)
    name = f"unnamed-{context.rpartition('.')[2]}"
    await apply(client, filtering(name, context, CASES["http-log"][1]))
    await apply(client, [shared(route(f"{name}-beside", f"/{name}-beside"))])
    await served(where, f"/{name}-beside")
    await until_left_out(client, name)

    kind = resource_of("SnippetsFilter" if context == "http" else "HTTPRoute")

    async def reported() -> bool:
        current = await client.get(kind, name, "default")
        return "rejected by nginx/" in str(current.get("status"))

    await until(reported)
    async with traffic(where, "/app") as answers:
        installation.part("controller").signal(signal.SIGKILL)
        await apply(client, [shared(route(f"{name}-later", f"/{name}-later"))])
        await served(where, f"/{name}-later")
        await until_left_out(client, name)
        await served(where, f"/{name}-good")
        await served(where, f"/{name}", 500)
    assert set(answers) == {"200"}, answers


async def test_bad_object_applied_while_the_controller_is_stopped_fails_no_request(
    installation: Installation, client: kube.Client, backends: None
) -> None:
    """The first version of the new controller has a bad object that no status names."""
    where = await ready(client)
    await holds(client, "HTTPRoute", "app", "Accepted")
    async with traffic(where, "/app") as answers:
        controller = installation.part("controller")
        controller.signal(signal.SIGSTOP)
        bad = filtering("meanwhile", "http.server.location", CASES["http-log"][1])
        await apply(client, [*bad, shared(route("meanwhile-too", "/meanwhile-too"))])
        controller.signal(signal.SIGKILL)
        await served(where, "/meanwhile-too")
        await until_left_out(client, "meanwhile")
        await served(where, "/meanwhile-good")
    assert set(answers) == {"200"}, answers


@pytest.mark.parametrize("before", ["served", "rejected"])
async def test_bad_edit_of_the_time_without_controller_delays_no_good_object(
    installation: Installation, client: kube.Client, backends: None, before: str
) -> None:
    """The error names nothing, and the status of the bad object is that of an earlier edit."""
    where = await ready(client)
    name, context = f"edited-{before}", "http.server.location"
    first = "add_header X-Seen first;" if before == "served" else CASES["location"][1]
    await apply(client, filtering(name, context, first))
    await served(where, f"/{name}", 200 if before == "served" else 500)
    kind = resource_of("HTTPRoute")

    async def has_status() -> bool:
        current = await client.get(kind, name, "default")
        text = str(current.get("status"))
        return "Accepted" in text and ("rejected by" in text) is (before == "rejected")

    await until(has_status)
    async with traffic(where, "/app") as answers:
        controller = installation.part("controller")
        controller.signal(signal.SIGSTOP)
        bad = filtering(name, context, CASES["location-log"][1])
        await apply(client, [*bad, shared(route(f"{name}-beside", f"/{name}-beside"))])
        controller.signal(signal.SIGKILL)
        await served(where, f"/{name}-beside")
        await until_left_out(client, name)
        await served(where, f"/{name}-good")
        await served(where, f"/{name}", 500)
        await apply(client, filtering(name, context, "add_header X-Seen last;"))
        await served(where, f"/{name}")
    assert set(answers) == {"200"}, answers
