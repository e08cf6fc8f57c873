"""Listeners that conflict, overlap or isolate each other, one by one and by the hundred."""

from __future__ import annotations

import base64
import functools
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fakes import cpu_growth
from fakes.authority import Authority
from fakes.compiled_objects import engine_with
from fakes.gateway_estate import secret
from gatehouse.apis.gateway import ListenerSpec
from gatehouse.compiler.frontends import gateway_api
from gatehouse.compiler.frontends.gateway_api import hostnames
from gatehouse.compiler.frontends.gateway_api.attachment.parent_refs import parent_results
from gatehouse.compiler.frontends.gateway_api.findings import Reason
from gatehouse.compiler.frontends.gateway_api.listeners import listeners as listening
from gatehouse.compiler.frontends.gateway_api.listeners.conflicts import (
    ListenerEntry,
    conflicts,
)
from gatehouse.compiler.frontends.gateway_api.translate import compile_gateway
from gatehouse.incremental.query import Engine

KEY = ("Gateway", "default", "gw")
LABELS = st.sampled_from(["a", "b", "example"])
EXACT = st.lists(LABELS, min_size=1, max_size=3).map(".".join)
NAMES = st.just("") | EXACT | EXACT.map(lambda name: f"*.{name}")
CLASS = {"metadata": {"name": "c"}, "spec": {"controllerName": "gatehouse.dev/nginx"}}


@functools.cache
def certificate() -> dict[str, Any]:
    """Return a Secret with a certificate."""
    with tempfile.TemporaryDirectory() as directory:
        files = Authority(Path(directory)).issue("example")
        chain, key = (base64.b64encode(file.read_bytes()) for file in files)
    return secret("tls", (chain, key))


def https(name: str, hostname: str) -> dict[str, Any]:
    """Return a listener that terminates TLS."""
    tls = {"certificateRefs": [{"name": "tls"}]}
    return {"name": name, "port": 443, "protocol": "HTTPS", "hostname": hostname, "tls": tls}


def with_listeners(names: Iterable[str]) -> Engine:
    """Return an engine with a route, and a Gateway with a listener for each hostname."""
    listeners = [https(f"l{index}", name) for index, name in enumerate(names)]
    objects: list[tuple[str, dict[str, Any]]] = [
        ("GatewayClass", CLASS),
        ("Secret", certificate()),
        (
            "Gateway",
            {
                "metadata": {"name": "gw", "namespace": "default"},
                "spec": {"gatewayClassName": "c", "listeners": listeners},
            },
        ),
        (
            "HTTPRoute",
            {
                "metadata": {"name": "r", "namespace": "default"},
                "spec": {"parentRefs": [{"name": "gw"}]},
            },
        ),
    ]
    return engine_with(objects, gateway_api.ControllerSettings(bind="any"))


def entry(name: str, *, hostname: str = "", protocol: str = "HTTP") -> ListenerEntry:
    """Return a listener of the Gateway."""
    return ListenerEntry(KEY, ListenerSpec(name, 80, protocol, hostname), valid=True)


@given(st.lists(NAMES, unique=True, max_size=9))
def test_listener_overlaps_with_each_other_one_that_serves_a_name_of_it(names: list[str]) -> None:
    with with_listeners(names).compile() as ask:
        states = ask(listening.ordered_listeners, KEY)
    for state, own in zip(states, names, strict=True):
        rivals = [
            f"l{index}"
            for index, name in enumerate(names)
            if name != own and hostnames.intersect(name, own) is not None
        ]
        messages = [
            finding.message
            for finding in state.findings
            if finding.reason is Reason.OVERLAPPING_TLS
        ]
        assert messages == (
            [f"listener {state.spec.name}: hostname overlaps with listener {', '.join(rivals)}"]
            if rivals
            else []
        )


@given(st.lists(NAMES, unique=True, min_size=1, max_size=9))
def test_route_has_each_name_at_the_most_specific_listener(names: list[str]) -> None:
    with with_listeners(names).compile() as ask:
        [attachment] = ask(parent_results, ("HTTPRoute", "default", "r"))
    owners = {place.hostname: place.listener[1] for place in attachment.listener_hostnames}
    assert owners == {name: f"l{index}" for index, name in enumerate(names)}


@pytest.mark.parametrize(
    ("others", "named"),
    [(2, "l1, l2"), (8, "l1, l2, l3, l4, l5, l6, l7, l8"), (500, "l1, l2, l3, l4, l5, l6, l7, l8")],
)
def test_message_about_a_conflict_names_a_few_listeners(others: int, named: str) -> None:
    more = f" and {others - 8} more" if others > 8 else ""
    entries = [entry(f"l{number}", hostname="a.example") for number in range(others + 1)]
    first = conflicts(entries)[0]
    assert {finding.message for finding in first} == {
        f"listener l0: port 80: hostname conflict with {named}{more}"
    }


def test_listener_conflicts_with_all_of_other_protocols_on_its_port() -> None:
    mixed = [entry("a"), entry("b", protocol="HTTPS"), entry("c", hostname="c.example")]
    messages = [{finding.message for finding in findings} for findings in conflicts(mixed)]
    assert messages == [
        {"listener a: port 80: protocol conflict with b"},
        {"listener b: port 80: protocol conflict with a, c"},
        {"listener c: port 80: protocol conflict with b"},
    ]


def test_work_for_listeners_and_a_route_to_all_grows_with_their_number() -> None:
    def steps(number: int) -> int:
        engine = with_listeners(["", *(f"h{index}.example" for index in range(number))])

        def work() -> None:
            with engine.compile() as ask:
                ask(compile_gateway, KEY)

        return cpu_growth.steps(work)

    assert steps(400) < 1.25 * 4 * steps(100)
