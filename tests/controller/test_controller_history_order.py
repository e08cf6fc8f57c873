"""Objects that a proxy rejects only together, for a controller that has not seen their changes.

The statuses tell what data planes serve, and the API server tells when an object changed last.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fakes.new_controller import FILTER, NewController, match
from gatehouse.compiler.frontends import gateway_api
from gatehouse.compiler.ir.unsupported import Suspect
from gatehouse.controller.assumed_good import MAX_FEW
from gatehouse.controller.history_order import last_change
from gatehouse.controller.stored_verdicts import StatusHistory
from gatehouse.dataplane.origin import object_of

GOOD = tuple(f"good-{number}" for number in range(6))
OLD, NEW = "2026-01-01T00:00:00Z", "2026-03-01T00:00:00Z"


def controller_of(
    *names: str, newest: str, together: tuple[str, str], trials: bool, serving: bool
) -> NewController:
    """Return a controller that finds routes with the status served, of which two are rejected only
    together. ``newest`` changed last."""
    controller = NewController(*map(match, names))
    controller.trials, controller.serving = trials, serving
    controller.bad_matches = ({f"{name}/0/0" for name in together},)
    controller.times = {("HTTPRoute", "ns", name): OLD for name in names}
    controller.times["HTTPRoute", "ns", newest] = NEW
    return controller


def controller_of_pair(newest: str, *, trials: bool, serving: bool) -> NewController:
    """Return a controller that finds good routes, and two that are rejected only together."""
    names, together = (*GOOD, "bad", "innocent"), ("bad", "innocent")
    return controller_of(*names, newest=newest, together=together, trials=trials, serving=serving)


def left_out(controller: NewController) -> set[str]:
    return {origin.name for origin in controller.quarantine.left_out}


@pytest.mark.parametrize("serving", [True, False])
@pytest.mark.parametrize("trials", [True, False])
@pytest.mark.parametrize("newest", ["bad", "innocent"])
def test_the_one_that_changed_last_of_two_served_objects_is_left_out(
    newest: str, trials: bool, serving: bool
) -> None:
    """Their names do not matter."""
    controller = controller_of_pair(newest, trials=trials, serving=serving)
    assert controller.settle()
    assert left_out(controller) == {newest}
    expected = {f"{name}/0/0" for name in (*GOOD, "bad", "innocent") if name != newest}
    assert controller.confirmed[-1] == expected
    if trials or serving:
        assert all(served == expected for served in controller.confirmed)


@pytest.mark.parametrize("named", ["bad", "innocent"])
@pytest.mark.parametrize("trials", [True, False])
@pytest.mark.parametrize("history", [StatusHistory.NEW, StatusHistory.CHANGED])
def test_object_that_is_not_served_is_left_out_although_the_message_names_the_served_one(
    history: StatusHistory, trials: bool, named: str
) -> None:
    controller = controller_of_pair("innocent", trials=trials, serving=True)
    controller.edited("bad", history=history)
    controller.named = lambda _: [Suspect(match(named).origin)]
    assert controller.settle()
    assert left_out(controller) == {"bad"}


@pytest.mark.parametrize("named", ["bad", "innocent"])
def test_message_about_the_older_one_of_two_served_objects_costs_it_nothing(named: str) -> None:
    controller = controller_of_pair("bad", trials=True, serving=True)
    controller.named = lambda _: [Suspect(match(named).origin)]
    assert controller.settle()
    assert left_out(controller) == {"bad"}
    assert all("innocent/0/0" in served for served in controller.confirmed)


def test_policy_is_left_out_and_not_the_route_that_the_message_names() -> None:
    controller = NewController(*map(match, (*GOOD, "r")), snippet="bad")
    controller.trials = True
    controller.named = lambda _: [Suspect(match("r").origin)]
    assert controller.settle()
    assert controller.quarantine.left_out == (object_of(FILTER),)


def test_served_objects_are_tried_each_alone_without_trials() -> None:
    """An instance that rejects a step goes on serving, so that no other object is taken away."""
    names = (*GOOD, "r")
    controller = controller_of(
        *names, newest="good-0", together=("r", "r"), trials=False, serving=True
    )
    controller.times["HTTPRoute", "ns", "r"] = "2026-02-01T00:00:00Z"
    assert controller.settle()
    good = {f"{name}/0/0" for name in GOOD}
    assert left_out(controller) == {"r"}
    assert all(served == good for served in controller.confirmed)


def test_data_planes_stay_unchanged_when_the_cause_is_none_of_the_youngest_objects() -> None:
    names = [f"r{number:02}" for number in range(MAX_FEW + 1)]
    controller = NewController(*map(match, names))
    controller.bad_matches = ({f"{names[0]}/0/0"},)
    controller.times = {
        ("HTTPRoute", "ns", name): f"2026-01-{number + 1:02}T00:00:00Z"
        for number, name in enumerate(names)
    }
    assert not controller.settle()
    assert controller.confirmed == []
    assert controller.quarantine.inputs == {}


class Object(msgspec.Struct, frozen=True):
    """A route that a new controller finds."""

    namespace: str
    history: StatusHistory


OBJECTS = st.lists(
    st.builds(Object, st.sampled_from(["ns", "tenant", "other"]), st.sampled_from(StatusHistory)),
    min_size=2,
    max_size=12,
)


class Population:
    """Routes that a new controller finds, each changed at another time."""

    def __init__(self, objects: list[Object], orders: Any) -> None:
        self.routes = {
            f"r{number}": match(f"r{number}", namespace=item.namespace)
            for number, item in enumerate(objects)
        }
        self.controller = NewController(*self.routes.values())
        for age, (name, item) in zip(
            orders.sample(range(len(objects)), len(objects)),
            zip(self.routes, objects, strict=True),
            strict=True,
        ):
            key = ("HTTPRoute", item.namespace, name)
            self.controller.histories[key] = item.history
            self.controller.times[key] = f"2026-01-{age + 1:02}T00:00:00Z"

    def reject(self, pairs: Iterable[tuple[str, str]], orders: Any) -> set[str]:
        """Let pairs of routes be rejected, because of their matches or of what they do.

        Return what must be left out: of each pair, that of which data planes serve less. If they
        serve the same of both, the one that changed last.
        """
        for pair in pairs:
            parts = ({self.routes[name].name for name in pair},)
            if orders.random() < 0.5:
                self.controller.bad_matches += parts
            else:
                self.controller.bad_actions += parts
        return {max(pair, key=self._place) for pair in pairs}

    def _place(self, name: str) -> tuple[int, str]:
        key = gateway_api.key_of(self.routes[name].origin)
        return -self.controller.histories[key], self.controller.times[key]

    def served(self) -> set[str]:
        """Return the routes with the status served."""
        histories = self.controller.histories.items()
        return {key[2] for key, history in histories if history is StatusHistory.SERVED}


ORDERS = st.randoms(use_true_random=False)


@given(OBJECTS, ORDERS, st.integers(1, 3), st.booleans(), st.booleans())
def test_of_each_two_objects_that_fail_together_the_younger_one_is_left_out(
    objects: list[Object], orders: Any, pairs: int, trials: bool, serving: bool
) -> None:
    """Whatever the messages name, and any namespaces."""
    population = Population(objects, orders)
    controller, names = population.controller, list(population.routes)
    controller.trials, controller.serving = trials or serving, serving
    chosen = orders.sample(names, min(len(names) // 2, pairs) * 2)
    expected = population.reject([*zip(chosen[::2], chosen[1::2], strict=True)], orders)
    named = [population.routes[name] for name in orders.sample(names, orders.randint(0, 2))]
    controller.named = lambda _: [Suspect(item.origin) for item in named]
    assert controller.settle()
    assert left_out(controller) == expected


@given(OBJECTS, ORDERS)
def test_search_without_trials_serves_no_less_than_before(
    objects: list[Object], orders: Any
) -> None:
    """Only the object that is left out is served no longer."""
    population = Population(objects[:MAX_FEW], orders)
    controller = population.controller
    pair = tuple(orders.sample(list(population.routes), 2))
    expected = population.reject([pair], orders)
    assert controller.settle()
    assert left_out(controller) == expected
    before = {population.routes[name].name for name in population.served() - expected}
    assert all(served >= before for served in controller.confirmed)


def entry(time: str, *fields: str, **more: str) -> dict[str, Any]:
    return {"manager": "m", "time": time, "fieldsV1": {field: {} for field in fields}, **more}


@pytest.mark.parametrize(
    ("managed", "expected"),
    [
        ([], OLD),
        ([entry(NEW, "f:spec")], NEW),
        ([entry(NEW, "f:metadata", "f:spec"), entry(OLD, "f:spec")], NEW),
        ([entry(NEW, "f:data")], NEW),
        ([entry(NEW, "f:status", subresource="status")], OLD),
        ([entry(NEW, "f:metadata")], OLD),
        ([{"manager": "m", "fieldsV1": {"f:spec": {}}}], OLD),
        ([{"manager": "m", "time": NEW}], OLD),
    ],
    ids=[
        "created", "edited", "edited by two", "content of a Secret", "status", "labels", "no time",
        "no fields",
    ],
)  # fmt: skip
def test_last_change_of_an_object_is_that_of_what_it_desires(
    managed: list[dict[str, Any]], expected: str
) -> None:
    metadata = {"name": "r", "creationTimestamp": OLD, "managedFields": managed}
    assert last_change({"metadata": metadata}) == expected


@pytest.mark.parametrize("raw", [None, {}, {"metadata": {"name": "r"}}])
def test_last_change_is_unknown_without_metadata(raw: dict[str, Any] | None) -> None:
    assert last_change(raw) == ""
