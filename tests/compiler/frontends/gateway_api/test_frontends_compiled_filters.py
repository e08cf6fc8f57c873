"""Filters of a rule, each of which returns the fields of the route that it sets."""

from __future__ import annotations

import msgspec
import pytest

from gatehouse.compiler.frontends.gateway_api.cluster_key import ClusterKey
from gatehouse.compiler.frontends.gateway_api.compiled_filters import Filters
from gatehouse.compiler.ir import http as ir
from gatehouse.compiler.ir.authentication import Basic

EDIT = ir.HeaderEdit(remove=("x-a",))
REDIRECT = ir.Redirect(301)
REWRITE = ir.Rewrite("a.example")
FIRST, SECOND = ir.Mirror("first"), ir.Mirror("second")

EXAMPLES = {
    "action": ir.Respond(404),
    "request_headers": EDIT,
    "response_headers": EDIT,
    "cors": ir.Cors(("*",)),
    "authentication": Basic("realm", "users"),
}
"""A value of each field of the route that takes one value."""


def forward(**fields: object) -> Filters:
    return Filters(ir.Route(action=msgspec.structs.replace(ir.Forward(), **fields)))


def with_field(name: str) -> Filters:
    return Filters(msgspec.structs.replace(ir.Route(), **{name: EXAMPLES[name]}))


@pytest.mark.parametrize("first", EXAMPLES)
@pytest.mark.parametrize("second", EXAMPLES)
def test_merge_keeps_all_fields_and_refuses_a_second_value(first: str, second: str) -> None:
    merged = with_field(first).merge(with_field(second))
    if first == second:
        assert merged is None
        return
    assert merged is not None
    values = {first: EXAMPLES[first], second: EXAMPLES[second]}
    assert merged.route == msgspec.structs.replace(ir.Route(), **values)


def test_last_of_two_values_applies_where_the_crd_rules_two_out() -> None:
    merged = with_field("cors").merge(Filters(ir.Route(cors=ir.Cors(()))), last_applies=True)
    assert merged == Filters(ir.Route(cors=ir.Cors(())))


def test_changes_of_forwarded_requests_are_merged() -> None:
    key = ClusterKey("ns", "first", 80, "http")
    first = Filters(ir.Route(action=ir.Forward(mirrors=(FIRST,))), clusters=(key,))
    merged = first.merge(forward(mirrors=(SECOND,), rewrite=REWRITE))
    expected = ir.Forward(mirrors=(FIRST, SECOND), rewrite=REWRITE)
    assert merged == Filters(ir.Route(action=expected), clusters=(key,))


@pytest.mark.parametrize("is_first", [True, False])
def test_gateway_answers_itself_whatever_else_the_rule_does(is_first: bool) -> None:
    answer, mirrored = Filters(ir.Route(action=REDIRECT)), forward(mirrors=(FIRST,))
    merged = answer.merge(mirrored) if is_first else mirrored.merge(answer)
    assert merged is not None
    assert merged.answer == REDIRECT
    assert mirrored.answer is None
