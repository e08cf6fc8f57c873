"""Rejected credentials of ports that verify clients: which of two read together is the cause."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fakes.client_ports import ClientPorts

MESSAGES: dict[str, Callable[[frozenset[str]], Iterable[str]]] = {
    "certificate": lambda read: [name for name in read if not name.startswith("ca")],
    "authority": lambda read: [name for name in read if name.startswith("ca")] or read,
    "both": lambda read: read,
}
"""Credentials of a rejected hostname that a message names."""

BAD = (["ca"], ["a"], ["c"], ["a", "b", "c"], ["ca", "a"], ["ca", "shared"])


def expected(bad: Iterable[str]) -> set[tuple[int, str]]:
    """Return the ports and hostnames that are served without the rejected credentials."""
    private = [] if "ca" in bad else ["a", "b", "c", "shared"]
    every = [(443, "old"), (443, "shared"), *((8443, name) for name in private)]
    return {(port, name) for port, name in every if name not in bad}


@pytest.mark.parametrize("authority_first", [True, False])
@pytest.mark.parametrize("messages", MESSAGES)
@pytest.mark.parametrize("bad", BAD, ids="-".join)
@pytest.mark.parametrize("envoy", [True, False], ids=["envoy", "nginx"])
def test_only_the_cause_is_left_out_of_credentials_that_are_read_together(
    envoy: bool, bad: list[str], messages: str, authority_first: bool
) -> None:
    """A new port, one certificate of which another port serves. Envoy names either of the two."""
    world = ClientPorts(bad=bad, envoy=envoy)
    world.named = MESSAGES[messages]
    world.put(443, "", "old")
    assert world.settle()
    if authority_first:
        world.put(8443, "ca", "a", "b", "c", "shared")
    else:
        world.put(8443, "", "a", "b", "c", "shared")
        world.put(8443, "ca", "a", "b", "c", "shared")
    world.put(443, "", "old", "shared")
    assert world.settle()
    wrong = world.left_out - set(bad)
    assert not wrong
    # What nothing reads any longer is no cause.
    assert set(bad) - world.left_out <= ({"a", "shared"} if "ca" in bad else set())
    assert world.served[-1] == expected(bad)
    assert all((443, "old") in served for served in world.served)


@pytest.mark.parametrize("serving", [True, False])
@pytest.mark.parametrize("trials", [True, False])
@pytest.mark.parametrize("messages", MESSAGES)
@pytest.mark.parametrize("bad", BAD, ids="-".join)
def test_new_controller_leaves_out_only_the_cause_of_credentials_that_are_read_together(
    bad: list[str], messages: str, trials: bool, serving: bool
) -> None:
    world = ClientPorts(bad=bad)
    world.named, world.serving, world.trials = MESSAGES[messages], serving, trials
    world.put(8443, "ca", "a", "b", "c", "shared")
    world.put(443, "", "old", "shared")
    assert world.settle()
    assert not world.left_out - set(bad)
    assert world.served[-1] == expected(bad)
    assert all((443, "old") in served for served in world.served)


NAMES = tuple("abcdef")


@given(
    st.sets(st.sampled_from((*NAMES, "ca", "ca-2")), max_size=4),
    st.randoms(use_true_random=False),
    st.booleans(),
    st.booleans(),
)
def test_any_messages_about_two_ports_leave_out_only_causes(
    bad: set[str], messages: random.Random, known: bool, envoy: bool
) -> None:
    """The ports have some certificates in common. Each message is about other ones."""
    world = ClientPorts(bad=bad, envoy=envoy)
    world.named = lambda read: messages.sample(sorted(read), messages.randint(1, len(read)))
    if known:
        world.put(443, "", "old")
        assert world.settle()
    world.put(8443, "ca", *NAMES[:4])
    world.put(8444, "ca-2", *NAMES[2:])
    world.put(443, "", "old", "a")
    assert world.settle()
    assert not world.left_out - bad
    ports = {(443, "old"), (443, "a")}
    ports |= {(8443, name) for name in NAMES[:4] if "ca" not in bad}
    ports |= {(8444, name) for name in NAMES[2:] if "ca-2" not in bad}
    assert world.served[-1] == {(port, name) for port, name in ports if name not in bad}


@pytest.mark.parametrize("messages", MESSAGES)
@pytest.mark.parametrize("known", [True, False])
def test_ca_certificates_of_a_port_of_many_hostnames_cost_few_tests(
    known: bool, messages: str
) -> None:
    world = ClientPorts(bad=["ca"])
    world.named = MESSAGES[messages]
    world.put(443, "", "old")
    if known:
        assert world.settle()
    world.tests = 0
    world.put(8443, "ca", *(f"h{number}" for number in range(64)))
    assert world.settle()
    assert world.left_out == {"ca"}
    assert world.tests <= 2 * math.log2(64) + 8
