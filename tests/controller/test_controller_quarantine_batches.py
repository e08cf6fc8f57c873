"""Many bad objects among good ones of the same namespace, and replicas that report differently."""

from __future__ import annotations

import math
import random

import pytest

from fakes.quarantine_model import Model, Served, honest, lying, served
from gatehouse.controller.quarantines import process_report
from gatehouse.dataplane.delivery import DataPlaneReport, InstanceReport


def check_history(history: list[Served], good: dict[str, str], before: dict[str, str]) -> None:
    """Check that good objects were always served as a compile without the bad ones has them.

    ``good``: their texts by name; ``before``: those of the objects that were served before. An
    object that changed may be as before for a while.
    """
    expected = {(f"{name}/0", text) for name, text in good.items()}
    earlier = {(f"{name}/0", text) for name, text in before.items()}
    live = {name for name, _ in earlier}
    for content in history:
        assert content <= expected | earlier, "something else is served"
        now = {name for name, _ in content}
        assert live <= now, "a good object that was live is taken away"
        live = now
    assert history[-1] == expected


@pytest.mark.parametrize("messages", ["none", "honest", "lying"])
@pytest.mark.parametrize(("bad", "size"), [(1, 300), (7, 40), (40, 40)])
def test_bad_objects_of_one_namespace_and_batch_cost_no_good_one(
    bad: int, size: int, messages: str
) -> None:
    orders = random.Random(f"{bad} {size} {messages}")
    names = [f"new{number}" for number in range(size)]
    culprits = set(orders.sample(names, bad))
    model = Model(lambda content: any(text == "bad" for _, text in content))
    before = {f"old{number}": "first" for number in range(5)}
    for name in before:
        model.put(name, "first")
    model.settle(orders)
    model.history.clear()
    if messages != "none":
        model.named = (
            honest(model, culprits) if messages == "honest" else lying(model, orders, names)
        )
    for name in names:
        model.put(name, "bad" if name in culprits else "first")
    good = before | dict.fromkeys(("old0", "old1"), "second")
    for name in ("old0", "old1"):
        model.put(name, "second")
    good |= {name: "first" for name in names if name not in culprits}
    tests = model.settle(orders)
    assert {origin.name for origin in model.quarantine.left_out} == culprits
    check_history(model.history, good, before)
    assert tests <= 6 + 2 * bad * (1 + math.log2(size + 2))


@pytest.mark.parametrize("messages", ["none", "honest", "lying"])
@pytest.mark.parametrize("bad", [3, 60, 128])
@pytest.mark.parametrize("moment", [1, 2, 5, 40])
def test_good_change_is_in_the_second_version_beside_any_number_of_bad_objects(
    moment: int, bad: int, messages: str
) -> None:
    """All of the same namespace; further bad objects change at the same time."""
    orders = random.Random(f"{moment} {bad} {messages}")
    names = [f"new{number}" for number in range(128)]
    culprits = set(orders.sample(names, bad))
    model = Model(lambda content: any(text == "bad" for _, text in content))
    model.put("old", "first")
    model.settle()
    if messages != "none":
        model.named = (
            honest(model, culprits) if messages == "honest" else lying(model, orders, names)
        )
    for name in names:
        model.put(name, "bad" if name in culprits else "first")
    model.publish()
    for _ in range(moment):
        if model.newest not in model.answered or model.quarantine.searching:
            model.deliver(model.test())
    model.put("late", "first")
    model.publish()
    for _ in range(2):
        model.deliver(model.test())
    assert ("late/0", "first") in model.serving


class Replicas:
    """Instances of one data plane that apply and report each version when they have time."""

    def __init__(self, model: Model, refused: dict[str, set[str]], orders: random.Random) -> None:
        """``refused``: texts that each instance rejects."""
        self.model, self.refused, self.orders = model, refused, orders
        self.reports = {
            name: InstanceReport(name, proxy=f"nginx/{name}", serving=True) for name in refused
        }
        self.history: dict[str, list[Served]] = {name: [] for name in refused}
        self.late: list[DataPlaneReport] = []

    def apply(self, name: str) -> None:
        """Let an instance test the newest version, and serve it unless it rejects it."""
        newest, content = self.model.newest, served(self.model.content)
        bad = self.refused[name] & {text for _, text in content}
        if bad:
            report = InstanceReport(
                name,
                desired=newest,
                confirmed=self.reports[name].confirmed,
                proxy=f"nginx/{name}",
                rejected_version=newest,
                rejection="bad",
                serving=True,
            )
        else:
            report = InstanceReport(
                name, desired=newest, confirmed=newest, proxy=f"nginx/{name}", serving=True
            )
            self.history[name].append(content)
        self.reports[name] = report

    def deliver(self, report: DataPlaneReport) -> bool:
        """Deliver a report. Return whether something was published."""
        changed = process_report(self.model.quarantine, report)
        if changed:
            self.model.publish()
        return changed

    def settle(self) -> int:
        """Run until all instances have answered the newest version. Return the number of tests."""
        tests, orders = 0, self.orders
        self.model.publish()
        for _ in range(20_000):
            waiting = [
                name for name, report in self.reports.items() if report.desired != self.model.newest
            ]
            now = DataPlaneReport("ns/gw", self.model.newest, tuple(self.reports.values()))
            if waiting and orders.random() < 0.6:
                self.apply(orders.choice(waiting))
                tests += 1
            elif self.late and orders.random() < 0.3:
                self.deliver(orders.choice(self.late[-8:]))
            else:
                self.late.append(now)
                if not self.deliver(now) and not waiting:
                    return tests
        raise AssertionError("the search does not end")


@pytest.mark.parametrize("seed", range(12))
def test_objects_that_only_some_replicas_reject_cost_no_good_one(seed: int) -> None:
    """Reports of several versions of a proxy are delivered late, twice and out of order."""
    orders = random.Random(seed)
    names = [f"new{number}" for number in range(24)]
    texts = dict.fromkeys(names, "first") | dict(
        zip(orders.sample(names, 3), ("bad-a", "bad-b", "bad-c"), strict=True)
    )
    model = Model(lambda _: False)
    replicas = Replicas(
        model, {"new": {"bad-a", "bad-b"}, "mid": {"bad-b"}, "old": {"bad-c"}}, orders
    )
    before = {f"old{number}": "first" for number in range(5)}
    for name in before:
        model.put(name, "first")
    replicas.settle()
    for history in replicas.history.values():
        history.clear()
    for name, text in texts.items():
        model.put(name, text)
    tests = replicas.settle()
    good = before | {name: "first" for name, text in texts.items() if text == "first"}
    assert {origin.name for origin in model.quarantine.left_out} == texts.keys() - good.keys()
    expected = {(f"{name}/0", text) for name, text in good.items()}
    steady = {(f"{name}/0", text) for name, text in before.items()}
    for history in replicas.history.values():
        assert history[-1] == expected
        for content in history:
            assert steady <= content, "a good object that was live is taken away"
            assert {one for one in content if not one[1].startswith("bad")} <= expected
    assert tests <= 3 * (6 + 2 * 3 * (1 + math.log2(24)))
