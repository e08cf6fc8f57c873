"""A rejection of one part of a Gateway's configuration, with the search that proves it."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from gatehouse.compiler.ir.gateway import GatewayConfiguration
from gatehouse.compiler.ir.unsupported import Suspect
from gatehouse.controller.held_back import held_back_key, without_held_back
from gatehouse.controller.quarantine import Quarantine
from gatehouse.dataplane.origin import Origin
from gatehouse.incremental.query import Engine, Key

MAX_STEPS = 8
"""Maximum number of steps of a search for one part."""


def reject_part(
    engine: Engine,
    key: Key,
    compiled: GatewayConfiguration,
    suspect: Suspect,
    message: str,
    among: Sequence[Origin] = (),
) -> Quarantine:
    """Let the proxy of a Gateway reject a part, and accept what lacks it. Commit the result."""
    quarantine = Quarantine(
        key,
        lambda *_: [suspect],
        lambda key: getattr(engine.snapshot.get(key), "spec", None),
        engine.reads,
    )
    quarantine.published("rejected", compiled)
    assert quarantine.rejected("rejected", message, "proxy/1", among), suspect
    part = msgspec.structs.replace(suspect, in_match=False)
    for step in range(MAX_STEPS):
        held = quarantine.inputs.get(held_back_key(key))
        if held is None:
            break
        version = f"step {step}"
        quarantine.published(version, without_held_back(held, compiled), compiled)
        if part in held.parts:
            assert quarantine.confirmed([version]), suspect
        else:
            assert quarantine.rejected(version, message, "proxy/1", among), suspect
    assert not quarantine.searching, suspect
    engine.commit(quarantine.inputs)
    return quarantine
