"""Feature story: what a proxy rejects is left out, and reported until it is served."""

from __future__ import annotations

import msgspec
import pytest

from fakes.loop_story import BASE, GATEWAY, HTTP_ROUTE, ROUTE, Story, story
from gatehouse.compiler.frontends import gateway_api
from gatehouse.controller import deferred_status
from gatehouse.dataplane.delivery import Rejection
from gatehouse.dataplane.origin import Origin

__all__ = ["story"]

REJECTED = """
status:
  parents:
  - parentRef: {group: gateway.networking.k8s.io, kind: Gateway, name: gw}
    controllerName: gatehouse.dev/nginx
    conditions:
    - type: Accepted
      status: "False"
      observedGeneration: 1
      message: "rules[0]: match rejected by nginx/1.31.3: no such match"
"""

SERVED = REJECTED.replace('"False"', '"True"').replace(
    "rules[0]: match rejected by nginx/1.31.3: no such match", "the route is accepted"
)


async def test_rejected_rule_is_left_out_and_reported_on_its_route(
    story: Story,
) -> None:
    story.fleet.say()
    story.apply(BASE)
    story.apply(ROUTE)
    await story.until(lambda: story.fleet.bundles)
    story.fleet.say(confirmed=True)
    await story.until(lambda: HTTP_ROUTE in story.written.now)
    assert story.fleet.instance is not None
    accepting = story.fleet.instance
    refusal = Rejection((Origin("HTTPRoute", "ns", "r", "rules[0].matches[0]"),), "no such filter")
    story.fleet.instance = msgspec.structs.replace(accepting, rejected=(refusal,))
    published = len(story.fleet.bundles)
    story.fleet.on_report("ns/gw")

    def refused() -> str:
        """Return why the route is not accepted, whose only rule is rejected."""
        status = (
            gateway_api.merge_gateway_api_status(None, story.written.now[HTTP_ROUTE], "T") or {}
        )
        conditions = {item["type"]: item for item in status["parents"][0]["conditions"]}
        assert "PartiallyInvalid" not in conditions
        accepted = conditions["Accepted"]
        return "" if accepted["status"] == "True" else accepted["message"]

    await story.until(lambda: len(story.fleet.bundles) > published)
    story.fleet.instance = accepting

    def proven() -> str:
        story.fleet.say(confirmed=True)
        return refused()

    await story.until(proven)
    assert refused() == "rules[0]: rejected by nginx/1.31.3: no such filter"

    def programmed() -> str:
        condition = story.written.condition(GATEWAY, "Programmed")
        assert condition["status"] == "True"
        return str(condition["message"])

    await story.until(lambda: "1 object left out" in programmed())
    assert "HTTPRoute ns/r" in programmed()
    published = len(story.fleet.bundles)
    story.apply(ROUTE.replace("a.example", "b.example").replace("value: /", "value: /x"))
    await story.until(lambda: len(story.fleet.bundles) > published)
    story.fleet.say(confirmed=True)
    await story.until(lambda: not refused())
    await story.until(lambda: "left out" not in programmed())


async def test_route_status_reports_a_rejection_until_its_retry_is_accepted(
    story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The instance needs longer for its answer than a status waits."""
    monkeypatch.setattr(deferred_status, "MAX_DEFER_SECONDS", 0.01)
    story.fleet.say()
    story.apply(BASE)
    story.apply(ROUTE.replace("name: r", "name: other").replace("value: /", "value: /other"))
    story.apply(ROUTE + REJECTED)
    await story.until(lambda: story.fleet.bundles)

    def message() -> str:
        return str(story.written.condition(HTTP_ROUTE, "Accepted")["message"])

    await story.until(lambda: HTTP_ROUTE in story.written.now)
    rejected = "rules[0]: match rejected by nginx/1.31.3: no such match"
    assert message() == rejected
    published = len(story.fleet.bundles)
    story.fleet.say(confirmed=True)
    accepting = story.fleet.instance
    assert accepting is not None
    story.fleet.instance = msgspec.structs.replace(accepting, proxy="nginx/1.32.0")
    story.fleet.on_report("ns/gw")
    await story.until(lambda: len(story.fleet.bundles) > published)
    await story.until(lambda: "left out" not in programmed(story))
    await story.quiet()
    assert message() == rejected
    story.fleet.say(confirmed=True)
    await story.until(lambda: message() == "the route is accepted")


@pytest.mark.parametrize("newest", ["bad", "innocent"])
async def test_new_controller_leaves_out_the_newest_of_two_routes_that_are_rejected_together(
    story: Story, newest: str
) -> None:
    """An earlier controller has written that both are served."""
    story.fleet.equipment = {"serving": True, "takes_trials": True}
    story.fleet.say()
    story.apply(BASE)
    for name in ("bad", "innocent"):
        text = ROUTE.replace("name: r", f"name: {name}").replace("value: /", f"value: /{name}")
        created = "2026-03-01T00:00:00Z" if name == newest else "2026-02-01T00:00:00Z"
        story.apply(text.replace("2026-01-01T00:00:00Z", created) + SERVED)
    await story.until(lambda: story.fleet.bundles)

    def is_left_out() -> bool:
        bundle = story.fleet.bundles[-1]
        content = b"".join(file.content for file in bundle.files.values())
        if b"/bad" in content and b"/innocent" in content:
            story.fleet.say(rejected_version=bundle.version, rejection="bad")
        else:
            story.fleet.say(confirmed=True)
        return f"HTTPRoute ns/{newest}" in programmed(story)

    await story.until(is_left_out)
    await story.quiet()
    assert "1 object left out" in programmed(story)


def programmed(story: Story) -> str:
    return str(story.written.condition(GATEWAY, "Programmed")["message"])


async def test_programmed_names_nothing_that_is_deleted(story: Story) -> None:
    """The configuration does not differ: the only match of the route was left out of it."""
    story.fleet.say()
    story.apply(BASE)
    story.apply(ROUTE.replace("name: r", "name: other").replace("value: /", "value: /other"))
    story.apply(ROUTE + REJECTED)
    await story.until(lambda: story.fleet.bundles)
    story.fleet.say(confirmed=True)

    def left_out() -> bool:
        message = story.written.condition(GATEWAY, "Programmed")["message"]
        return "left out" in message and "HTTPRoute ns/r" in message

    await story.until(left_out)
    await story.quiet()
    published = len(story.fleet.bundles)
    story.apply(ROUTE, delete=True)
    await story.until(lambda: not left_out())
    assert len(story.fleet.bundles) == published


async def test_rejection_is_reported_on_the_gateway_until_corrected(story: Story) -> None:
    story.fleet.say()
    story.apply(BASE + "---" + ROUTE)
    await story.until(lambda: story.fleet.bundles)
    story.fleet.say(error="[emerg] unknown directive")
    await story.until(lambda: story.written.condition(GATEWAY, "Programmed")["reason"] == "Invalid")
    assert "unknown directive" in story.written.condition(GATEWAY, "Programmed")["message"]
    story.apply(ROUTE, delete=True)
    await story.until(lambda: len(story.fleet.bundles) == 2)
    story.fleet.say(confirmed=True)
    await story.until(lambda: story.written.condition(GATEWAY, "Programmed")["status"] == "True")
