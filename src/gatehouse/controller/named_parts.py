"""Parts of a configuration that a proxy names when it rejects the configuration. No I/O."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from gatehouse.compiler.ir import gateway as ir
from gatehouse.compiler.ir.unsupported import Suspect
from gatehouse.controller.held_back import port_part
from gatehouse.dataplane.origin import Origin


def named_parts(
    gateway: ir.GatewayConfiguration,
    among: tuple[Origin, ...],
    trace: Callable[[ir.GatewayConfiguration], Iterable[Suspect]],
) -> Iterator[Suspect]:
    """Yield what a proxy names: objects, or an object with a credential.

    ``among``: origins of what was rejected, if the proxy names it. ``trace``: returns what its
    message is about.
    """
    if is_listener(among):
        return  # What it contains is the cause, not its port.
    if among:
        names = [entry.name for entry in gateway.credentials if entry.origins == among]
        yield from (Suspect(among[0], credential=name) for name in names)
        if names or len(among) > 1:
            return
    for suspect in (Suspect(among[0]),) if among else trace(gateway):
        port = suspect.origin.port
        yield port_part(port) if port else suspect


def is_listener(among: Sequence[Origin]) -> bool:
    """Return whether a rejected resource is a listener: its origins have the port."""
    return any(origin.port for origin in among)
