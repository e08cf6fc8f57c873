"""Searches of a quarantine under any order of reports: late, twice, and about old versions."""

from __future__ import annotations

import math
import random

import msgspec
import pytest

from fakes.proxy_output import output
from fakes.quarantine_model import Model, Served, honest, lying, served
from gatehouse.compiler.ir import gateway as ir
from gatehouse.compiler.ir.unsupported import Suspect
from gatehouse.controller.assumed_good import MAX_FEW, MAX_TOGETHER
from gatehouse.controller.verdicts import RETRY
from gatehouse.dataplane.origin import port_origin


@pytest.mark.parametrize("messages", ["none", "honest", "lying"])
@pytest.mark.parametrize("seed", range(30))
def test_search_ends_with_only_the_causes_left_out(seed: int, messages: str) -> None:
    check_order(seed, messages)


@pytest.mark.long
@pytest.mark.parametrize("messages", ["none", "honest", "lying"])
def test_search_ends_in_any_of_a_thousand_orders(messages: str) -> None:
    for seed in range(1000, 2000):
        check_order(seed, messages)


def check_order(seed: int, messages: str) -> None:
    """Let objects change at once, of which some are bad, and deliver the reports in any order."""
    orders = random.Random(f"{seed} {messages}")
    old = [f"old{number}" for number in range(orders.randint(1, 12))]
    new = [f"new{number}" for number in range(orders.randint(1, 40))]
    edited = set(orders.sample(old, orders.randint(0, len(old))))
    changed = [*edited, *new]
    bad = set(orders.sample(changed, min(len(changed), orders.randint(0, 4))))
    good = [name for name in changed if name not in bad]
    pair = set(orders.sample(good, 2)) if len(good) > 1 and orders.random() < 0.3 else set()
    if pair and orders.random() < 0.5 and (steady := [name for name in old if name not in edited]):
        pair = {steady[0], orders.choice(sorted(pair))}

    def rejects(content: Served) -> bool:
        contents = {(name.rpartition("/")[0], text) for name, text in content}
        texts = {(name, "second" if name in changed else "first") for name in pair}
        return any((name, "second") in contents for name in bad) or (
            bool(pair) and texts <= contents
        )

    model = Model(rejects)
    spaces = {name: orders.choice(("ns", "tenant", "other")) for name in (*old, *new)}
    for name in old:
        model.put(name, "first", namespace=spaces[name])
    model.settle(orders)
    assert {name for name, _ in model.serving} == {f"{name}/0" for name in old}
    model.history.clear()
    if messages != "none":
        model.named = (
            honest(model, bad) if messages == "honest" else lying(model, orders, [*old, *new])
        )
    for name in changed:
        model.put(name, "second", namespace=spaces[name])
    tests = model.settle(orders)
    left_out = {origin.name for origin in model.quarantine.left_out}
    assert left_out - pair == bad
    assert left_out & pair == set(sorted(pair & set(changed), key=changed.index)[-1:])
    assert model.serving == {
        (f"{name}/0", "second" if name in changed else "first") for name in {*old, *new} - left_out
    }
    before = {f"{name}/0" for name in old if name not in bad | pair}
    for content in model.history:
        assert before <= {name for name, _ in content}, "a step serves less than before"
    causes = len(bad) + bool(pair)
    assert tests <= 4 + 5 * causes * (1 + math.log2(1 + len(changed))), (tests, causes)


def without(gateway: ir.GatewayConfiguration, names: set[str]) -> ir.GatewayConfiguration:
    """Return a configuration without the routes of some objects."""
    listeners = []
    for listener in gateway.listeners:
        hosts = []
        for host in listener.virtual_hosts:
            routes = tuple(item for item in host.routes if item.origin.name not in names)
            hosts += [msgspec.structs.replace(host, routes=routes)] if routes else []
        listeners.append(msgspec.structs.replace(listener, virtual_hosts=tuple(hosts)))
    return msgspec.structs.replace(gateway, listeners=tuple(listeners))


@pytest.mark.parametrize("messages", ["none", "honest", "lying"])
@pytest.mark.parametrize("shared", [False, True], ids=["own-hosts", "one-host"])
@pytest.mark.parametrize("seed", range(5))
def test_output_of_good_objects_is_that_without_bad_ones_at_every_moment(
    seed: int, shared: bool, messages: str
) -> None:
    """On both proxies, from the first confirmation on. A change is live or not, and not in part."""
    orders = random.Random(f"{seed} {shared} {messages}")
    old, new = ([f"{age}{number}" for number in range(6)] for age in ("old", "new"))
    changed = [*new, *old[:3]]
    bad = set(orders.sample(changed, 3))
    names = [name for name in (*old, *new) if name not in bad]
    model, alone = (
        Model(lambda content: any(t == "bad" for _, t in content)),
        Model(lambda _: False),
    )
    if shared:
        model.hostname = alone.hostname = lambda _: "shared"
    for name in old:
        model.put(name, "first", matches=2)
    model.settle(orders)
    if messages != "none":
        model.named = honest(model, bad) if messages == "honest" else lying(model, orders, names)
    for name in changed:
        model.put(name, "bad" if name in bad else "second", matches=2)
    model.settle(orders)
    for configuration in model.configurations:
        texts = {name.rpartition("/")[0]: text for name, text in served(configuration)}
        assert texts.keys() >= {name for name in old if name in names}, "less than before"
        alone.routes.clear()
        for name in names:
            if name in texts:
                alone.put(name, texts[name], matches=2)
        expected = output(alone.compile())
        mixed = output(without(configuration, bad) if shared else configuration)
        assert {key: mixed.get(key) for key in expected} == expected
    assert {name: texts[name] for name in names} == {
        name: "second" if name in changed else "first" for name in names
    }


@pytest.mark.parametrize("causes", [1, 2, 3])
@pytest.mark.parametrize("messages", ["none", "honest", "lying"])
@pytest.mark.parametrize("seed", range(8))
def test_search_among_served_objects_ends_without_trials(
    seed: int, messages: str, causes: int
) -> None:
    """After a restart, with an agent that can only serve a version to test it."""
    orders = random.Random(f"{seed} {messages} {causes}")
    names = [f"r{number:02}" for number in range(12)]
    bad = set(orders.sample(names[-MAX_FEW:], causes))
    model = Model(
        lambda content: bool({f"{n}/0" for n in bad} & {n for n, _ in content}), restarted=True
    )
    if messages != "none":
        model.named = honest(model, bad) if messages == "honest" else lying(model, orders, names)
    for name in names:
        model.put(name, "first")
    tests = model.settle(orders)
    good = {(f"{name}/0", "first") for name in names if name not in bad}
    left_out = {origin.name for origin in model.quarantine.left_out}
    if causes <= MAX_TOGETHER:
        assert left_out == bad
        assert model.serving == good
    if messages != "lying":
        # All objects that messages name are held back once none and no two of them are the cause.
        assert all(content >= good for content in model.history)
    assert tests <= 3 * (MAX_FEW + math.comb(MAX_FEW, MAX_TOGETHER)) + 16


@pytest.mark.parametrize("messages", ["none", "honest", "lying"])
@pytest.mark.parametrize("bad_too", [False, True])
@pytest.mark.parametrize("moment", [1, 2, 3, 4, 6, 9, 13])
def test_good_change_during_a_search_is_live_after_two_tests(
    moment: int, bad_too: bool, messages: str
) -> None:
    bad = {"new3", "new17", "late-bad"}
    model = Model(lambda content: bool({f"{name}/0" for name in bad} & {n for n, _ in content}))
    model.put("old", "first")
    model.settle()
    if messages != "none":
        names = [f"new{number}" for number in range(32)]
        orders = random.Random(moment)
        model.named = honest(model, bad) if messages == "honest" else lying(model, orders, names)
    for number in range(32):
        model.put(f"new{number}", "first")
    model.publish()
    for _ in range(moment):
        if model.newest not in model.answered or model.quarantine.searching:
            model.deliver(model.test())
    model.put("late", "first")
    model.publish()
    for _ in range(2):
        model.deliver(model.test())
    assert ("late/0", "first") in model.serving
    if bad_too:
        model.put("late-bad", "first")
    model.settle()
    expected = bad if bad_too else bad - {"late-bad"}
    assert {origin.name for origin in model.quarantine.left_out} == expected


@pytest.mark.parametrize("messages", ["none", "honest"])
@pytest.mark.parametrize("others", [1, 7])
@pytest.mark.parametrize("many", [1, 10, 40])
def test_good_changes_in_one_batch_with_many_bad_objects_of_another_namespace(
    many: int, others: int, messages: str
) -> None:
    """The number of bad objects does not matter to other namespaces."""
    bad = {f"bad{number}" for number in range(many)}
    model = Model(lambda content: any(text == "bad" for _, text in content))
    model.put("old", "first")
    model.settle()
    if messages == "honest":
        model.named = honest(model, bad)
    for name in sorted(bad):
        model.put(name, "bad", namespace="evil")
    good = {(f"good{number}/0", "first") for number in range(others)}
    for number in range(others):
        model.put(f"good{number}", "first", namespace=f"tenant{number}")
    model.publish()
    model.deliver(model.test())
    fair = messages == "none" and many > others
    for _ in range(2 if fair else 2 + 2 * math.ceil(math.log2(1 + others))):
        if not good <= model.serving:
            model.deliver(model.test())
    assert good <= model.serving
    tests = model.settle()
    assert {origin.name for origin in model.quarantine.left_out} == bad
    assert tests <= 8 + many * (2 + math.log2(1 + many + others))


def test_bad_objects_of_several_namespaces_delay_others_by_their_number() -> None:
    model = Model(lambda content: any(text == "bad" for _, text in content))
    model.put("old", "first")
    model.settle()
    for number in range(60):
        model.put(f"bad{number}", "bad", namespace=f"evil{number % 4}")
    model.put("good", "first", namespace="tenant")
    model.publish()
    tests = 0
    while ("good/0", "first") not in model.serving:
        model.deliver(model.test())
        tests += 1
    assert tests <= 5
    model.settle()
    assert len(model.quarantine.left_out) == 60


@pytest.mark.parametrize("messages", ["none", "older", "newer"])
@pytest.mark.parametrize("moment", [0, 1, 2, 5, 9])
@pytest.mark.parametrize("many", [0, 1, 30])
def test_newer_object_of_another_namespace_is_left_out_of_two_that_fail_together(
    many: int, moment: int, messages: str
) -> None:
    """The older one is in a namespace with bad objects, so that the newer one is served first."""
    pair = {("older/0", "half"), ("newer/0", "half")}
    model = Model(lambda content: pair <= content or any(text == "bad" for _, text in content))
    model.put("old", "first")
    model.settle()
    model.named = lambda content: (
        Suspect(model.routes[messages][0].origin) for name, _ in content if name == f"{messages}/0"
    )
    for number in range(many):
        model.put(f"bad{number}", "bad", namespace="tenant")
    model.put("older", "half", namespace="tenant")
    model.put("good", "first", namespace="tenant")
    model.publish()
    for _ in range(moment):
        if model.newest not in model.answered or model.quarantine.searching:
            model.deliver(model.test())
    model.put("newer", "half", namespace="evil")
    model.put("newest", "first", namespace="other")
    tests = model.settle()
    left_out = {origin.name for origin in model.quarantine.left_out}
    assert left_out == {"newer", *(f"bad{number}" for number in range(many))}
    names = ("old", "older", "good", "newest")
    assert {name for name, _ in model.serving} == {f"{name}/0" for name in names}
    assert tests <= 16 + many * (3 + math.log2(1 + many))


@pytest.mark.parametrize("many", [1, 30])
def test_objects_of_one_namespace_that_fail_together_take_no_other_change_away(many: int) -> None:
    pairs = [{(f"older{number}/0", "half"), (f"newer{number}/0", "half")} for number in range(8)]
    model = Model(
        lambda content: (
            any(pair <= content for pair in pairs) or any(text == "bad" for _, text in content)
        )
    )
    model.put("old", "first")
    model.settle()
    for number in range(many):
        model.put(f"bad{number}", "bad", namespace="evil")
    for name in ("older", "newer"):
        for number in range(8):
            model.put(f"{name}{number}", "half", namespace="evil")
        model.put(f"beside-{name}", "first", namespace="tenant")
        model.publish()
        for _ in range(4):
            model.deliver(model.test())
    model.history.clear()
    model.settle()
    left_out = {origin.name for origin in model.quarantine.left_out}
    assert left_out == {
        *(f"newer{number}" for number in range(8)),
        *(f"bad{number}" for number in range(many)),
    }
    for content in model.history:
        assert {("beside-older/0", "first"), ("beside-newer/0", "first")} <= content


@pytest.mark.parametrize("messages", ["none", "honest"])
def test_route_of_many_bad_matches_delays_others_by_one_division(messages: str) -> None:
    model = Model(lambda content: any(text == "bad" for _, text in content))
    model.put("old", "first")
    model.settle()
    if messages == "honest":
        model.named = honest(model, {"many"})
    model.put("many", "bad", matches=128)
    for number in range(8):
        model.put(f"good{number}", "first")
    model.history.clear()
    tests = model.settle()
    everybody = {("old/0", "first"), *((f"good{number}/0", "first") for number in range(8))}
    live = next(index for index, content in enumerate(model.tests[1:]) if content >= everybody)
    assert model.serving == everybody
    assert tests <= 50
    if messages == "honest":
        assert model.history[0] == everybody, "the first step has all other routes"
    assert live < 60


def test_one_bad_match_is_found_and_the_others_are_served() -> None:
    model = Model(lambda content: ("many/5", "bad") in content)
    model.put("old", "first")
    model.settle()
    model.named = honest(model, {"many"})
    model.put("many", "bad", matches=64)
    model.settle()
    (left_out,) = model.quarantine.left_out
    assert left_out.part == "rules[0].matches[5]"
    assert len(model.serving) == 64


def test_verdict_is_tried_again_alone_with_back_off() -> None:
    bad = {"r"}
    model = Model(lambda content: bool({f"{name}/0" for name in bad} & {n for n, _ in content}))
    for name in ("r", "a", "b"):
        model.put(name, "first")
    model.settle()
    assert {origin.name for origin in model.quarantine.left_out} == bad
    for count in range(1, 9):
        delay = RETRY.delay(count)
        model.now += delay - 1
        assert not model.quarantine.retry()
        model.now += 1
        assert model.quarantine.retry()
        assert model.settle() <= 2, "one test, and the version of before"
        assert {origin.name for origin in model.quarantine.left_out} == bad
        assert len(model.serving) == 2
    bad.clear()
    model.now += RETRY.maximum
    assert model.quarantine.retry()
    model.settle()
    assert model.quarantine.inputs == {}
    assert len(model.serving) == 3


def test_bad_route_behind_a_false_port_message_is_left_out_and_the_port_is_served() -> None:
    """A proxy that lies about a port can close it only during the search."""
    model = Model(lambda content: ("bad/0", "first") in content)
    model.put("old", "first")
    model.settle()
    model.named = lambda _: [Suspect(port_origin("ns/gw", 80))]
    model.put("bad", "first")
    model.settle()
    assert model.serving == {("old/0", "first")}
    assert {origin.name for origin in model.quarantine.left_out} == {"bad"}


def test_route_that_is_deleted_before_its_rejection_is_reported_is_not_left_out() -> None:
    model = Model(lambda content: ("bad/0", "first") in content)
    model.put("old", "first")
    model.settle()
    model.put("bad", "first")
    model.settle()
    model.now += RETRY.first
    assert model.quarantine.retry()
    model.publish()
    version = model.test()
    del model.routes["bad"]
    model.quarantine.forget(("HTTPRoute", "ns", "bad"))
    model.deliver(version)
    model.settle()
    assert model.quarantine.left_out == ()
    assert not model.quarantine.searching
