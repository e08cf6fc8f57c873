"""Explanations leave out what the proxies rejected, as the conditions of objects say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from gatehouse.compiler.evaluation.explanation import Explanation
from gatehouse.inspection.object_set import ObjectSet
from gatehouse.inspection.request_explanation import explain_target, parse_request_target

CASE = Path(__file__).parents[1] / "golden" / "rejected-by-the-proxy-snippets"
CLASS = {
    "kind": "GatewayClass", "metadata": {"name": "gatehouse-nginx"},
    "spec": {"controllerName": "gatehouse.dev/nginx"},
}  # fmt: skip


def live_objects(generation: int = 1) -> list[dict[str, Any]]:
    """Return the objects of a golden case with its expected statuses."""
    statuses = yaml.safe_load((CASE / "status.yaml").read_text())
    objects = list(yaml.safe_load_all((CASE / "input.yaml").read_text()))
    for item in objects:
        item["metadata"] |= {
            "namespace": "ns", "generation": generation,
            "creationTimestamp": "2026-01-01T00:00:00Z",
        }  # fmt: skip
        status = statuses.get(f"{item['kind']} {item['metadata']['name']}")
        if status is not None:
            item["status"] = status
            _observe(status)
    return objects


def _observe(value: Any) -> None:
    """Add the generation and the controller, which golden files do not contain."""
    if isinstance(value, dict):
        if "reason" in value:
            value["observedGeneration"] = 1
        if "conditions" in value:
            value["controllerName"] = "gatehouse.dev/nginx"
        for item in value.values():
            _observe(item)
    elif isinstance(value, list):
        for item in value:
            _observe(item)


def explained(objects: list[dict[str, Any]], url: str) -> Explanation:
    target = parse_request_target((url,), (), None, "")
    return explain_target(ObjectSet([CLASS, *objects], [], ()), target, "", offline=False)


@pytest.mark.parametrize(
    ("url", "cause"),
    [
        ("http://part.example:8080/action", "500: rules[1]: rejected by proxy/1: bad action"),
        ("http://alone.example:8080/", "500: rules[0]: rejected by proxy/1: bad route"),
        (
            "http://part.example:8080/filter",
            "500: rules[2].filters[0]: SnippetsFilter ns/bad: rejected by proxy/1: unknown",
        ),
        ("http://part.example:8080/", "forwarded to Service ns/a:80"),
        ("http://whole.example:8080/", "forwarded to Service ns/a:80"),
    ],
)
def test_first_line_names_the_rejection(url: str, cause: str) -> None:
    assert explained(live_objects(), url).answer.cause.startswith(cause)


def with_matches(reason: str, *matches: dict[str, Any], rest: bool) -> list[dict[str, Any]]:
    """Return the objects with another reason and other matches of the first rule.

    ``rest``: the last rule matches everything.
    """
    objects = live_objects()
    for item in objects:
        if item["metadata"]["name"] == "part":
            first, *_, last = item["spec"]["rules"]
            item["spec"]["rules"] = [first | {"matches": list(matches)}, *([last] if rest else [])]
            for condition in item["status"]["parents"][0]["conditions"]:
                if "rejected" in condition["message"]:
                    condition["message"] = reason
    return objects


PATTERN = {"path": {"type": "RegularExpression", "value": "/match"}}
OF_ACTION = "rules[0]: rejected by proxy/1: bad action"
IN_MATCH = "rules[0]: match rejected by proxy/1: bad expression"


def test_action_that_the_proxy_rejected_is_answered_with_500_alone() -> None:
    objects = with_matches(OF_ACTION, PATTERN, rest=True)
    answer = explained(objects, "http://part.example:8080/match").answer
    assert (answer.cause, answer.statuses) == (f"500: {OF_ACTION}", (500,))


def test_match_that_the_proxy_rejected_is_answered_with_404() -> None:
    objects = with_matches(IN_MATCH, PATTERN, rest=False)
    answer = explained(objects, "http://part.example:8080/match").answer
    reason = "match rejected by proxy/1: bad expression"
    assert answer.cause == f"404: HTTPRoute ns/part: spec.rules[0].matches[0]: {reason}"
    assert (answer.verdict, answer.statuses) == ("answered", (404,))


def test_other_route_answers_what_a_rejected_match_does_not() -> None:
    objects = with_matches(IN_MATCH, PATTERN, {"path": {"value": "/b"}}, rest=True)
    rejected = explained(objects, "http://part.example:8080/match")
    assert rejected.answer.cause == "forwarded to Service ns/a:80"
    assert rejected.match == "HTTPRoute ns/part: spec.rules[1].matches[0]"
    (ruled_out, *_) = rejected.ruled_out
    assert ruled_out.reasons == ("match rejected by proxy/1: bad expression",)
    assert explained(objects, "http://part.example:8080/b").match.endswith("rules[0].matches[1]")


def test_rejected_policy_does_not_apply() -> None:
    objects = live_objects()
    url = "http://whole.example:8080/"
    assert explained(objects, url).applied == ()
    for item in objects:
        item.pop("status", None)
        if item["kind"] == "Gateway":
            item["status"] = {"conditions": [{"type": "Programmed", "status": "True"}]}
    assert [item.type for item in explained(objects, url).applied] == ["ClientSettingsPolicy"]


def test_rejected_port_is_not_listened_on() -> None:
    answer = explained(live_objects(), "http://x.example:8081/").answer
    assert (answer.verdict, answer.cause.partition(":")[0]) == ("no-answer", "no answer")


def test_conditions_of_an_earlier_generation_do_not_count() -> None:
    result = explained(live_objects(generation=2), "http://part.example:8080/action")
    assert result.answer.cause == "forwarded to Service ns/a:80"


def test_gateway_that_lacks_objects_is_noted() -> None:
    notes = explained(live_objects(), "http://part.example:8080/").notes
    assert any("5 objects left out because the proxy rejected" in note for note in notes)
