"""Settings of a route of which some are held back: each policy is chosen alone."""

from __future__ import annotations

import pytest

from gatehouse.compiler.ir import gateway as ir
from gatehouse.compiler.ir import http
from gatehouse.compiler.ir.settings import ClientSettings, Compression, Settings
from gatehouse.compiler.ir.tracing import Tracing
from gatehouse.compiler.ir.unsupported import Suspect
from gatehouse.controller.held_back import HeldBack, changed_parts, without_held_back
from gatehouse.dataplane.origin import Origin

CLIENT, TRACES = Origin("ClientSettingsPolicy", "ns", "c"), Origin("ObservabilityPolicy", "ns", "t")
COMPRESSION = Compression(
    enabled=True, sources=(("enabled", Origin("TrafficPolicy", "ns", "p", "compression")),)
)


def gateway(body_size: int, percent: float | None) -> ir.GatewayConfiguration:
    """Build a Gateway with one route; ``percent``: share of its requests that is traced."""
    client = ClientSettings(body_size=body_size, sources=(("body_size", CLIENT),))
    tracing = Tracing(percent, origin=TRACES) if percent is not None else None
    route = http.Route(
        "r",
        http.Match(),
        http.Respond(200),
        settings=Settings(client=client, tracing=tracing, compression=COMPRESSION),
        origin=Origin("HTTPRoute", "ns", "r"),
    )
    host = http.VirtualHost("a.example", (route,))
    return ir.GatewayConfiguration("ns/gw", listeners=(ir.Listener(80, "HTTP", (host,)),))


@pytest.mark.parametrize("percent", [50, None])
@pytest.mark.parametrize(
    ("held", "body_size", "new_traces"),
    [((CLIENT,), 1, True), ((TRACES,), 2, False), ((CLIENT, TRACES), 1, False), ((), 2, True)],
    ids=["client settings", "traces", "both", "none"],
)
def test_settings_of_held_back_policy_stay(
    held: tuple[Origin, ...], body_size: int, new_traces: bool, percent: float | None
) -> None:
    good, new = gateway(1, percent), gateway(2, 100)
    expected = gateway(body_size, 100 if new_traces else percent)
    parts = frozenset(map(Suspect, held))
    assert without_held_back(HeldBack(good, parts), new) == expected


def test_policies_of_traces_are_parts() -> None:
    parts = changed_parts(gateway(1, 50), gateway(2, 100), lambda _: True)
    assert {part.origin for part in parts} >= {CLIENT, TRACES}


def test_traces_stay_while_another_policy_is_held_back() -> None:
    good, new = gateway(1, 50), gateway(2, 50)
    held = HeldBack(good, frozenset({Suspect(CLIENT)}))
    assert without_held_back(held, new) == good
