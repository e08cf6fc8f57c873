"""Compiler over a fixed set of objects: what the controller would compile, without data planes."""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from gatehouse.compiler.backends import envoy, nginx
from gatehouse.compiler.frontends import combined, gateway_api
from gatehouse.controller import outputs
from gatehouse.incremental.query import Ask, Engine, Key, Snapshot

_NEWEST_NGINX = nginx.NginxCapabilities.parse(
    "1.31.3", (), named_endpoints=True, connectors=True, authenticators=True, pickers=True
)
_CAPABILITIES: Mapping[str, Any] = {
    gateway_api.NGINX: _NEWEST_NGINX,
    gateway_api.ENVOY: envoy.EnvoyCapabilities(
        "system.pem", authenticators=True, runtime_limits=True
    ),
}
"""Capabilities of data planes that this version of Gatehouse provisions."""


_SETTINGS = gateway_api.ControllerSettings(bind="any", snippets=True)
"""Gateways listen on all addresses, so that they need no Service."""


@contextmanager
def offline_pass(objects: Iterable[Mapping[str, Any]]) -> Iterator[Ask]:
    """Compile objects as read from an API server. Unknown kinds are ignored."""
    with compile_pass(offline_engine(objects)) as ask:
        yield ask


@contextmanager
def compile_pass(engine: Engine) -> Iterator[Ask]:
    """Compile with the garbage collector disabled, as in a compile pass of the controller."""
    gc.disable()
    try:
        with engine.compile() as ask:
            yield ask
    finally:
        gc.enable()


def offline_engine(
    objects: Iterable[Mapping[str, Any]],
    settings: gateway_api.ControllerSettings = _SETTINGS,
    *,
    programmed: bool = False,
) -> Engine:
    """Return an engine with objects and the newest data planes.

    ``programmed``: Gateways count as programmed, so that only other conditions are bad.
    """
    changes: dict[Key, Any] = {
        gateway_api.SETTINGS_KEY: settings,
        gateway_api.BACK_END_FINDINGS_KEY: outputs.unsupported_findings,
        outputs.BACK_ENDS: {
            gateway_api.NGINX: nginx.generate_files,
            gateway_api.ENVOY: envoy.generate_resources,
        },
    }
    for raw in objects:
        kind, metadata = raw["kind"], raw["metadata"]
        if kind not in combined.KINDS.by_name:
            continue
        key = (kind, metadata.get("namespace", ""), metadata["name"])
        changes[key] = combined.decode_object(kind, raw)
        if kind == "Gateway":
            for controller, capabilities in _CAPABILITIES.items():
                changes[outputs.capabilities_key(controller, key)] = capabilities
            if programmed:
                changes["Programming", *key[1:]] = gateway_api.ProgrammedInput(programmed=True)
    engine = Engine(Snapshot(combined.INDEXES))
    engine.commit(changes)
    return engine
