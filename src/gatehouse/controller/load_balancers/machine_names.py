"""Names by which configuration is delivered to external machines: one for each machine."""

from __future__ import annotations

from gatehouse.incremental.query import Key

_KIND = "ExternalLoadBalancer"


def machine_name(balancer: str, host: str) -> str:
    """Return the delivery name of a machine. ``balancer``: ``Kind namespace/name``."""
    return f"{balancer}/{host}"


def is_machine(name: str) -> bool:
    """Return whether a delivery name is that of a machine, not of a Gateway."""
    return name.startswith(f"{_KIND} ")


def balancer_of(name: str) -> str:
    """Return the load balancer of a machine: ``Kind namespace/name``."""
    return name.rpartition("/")[0]


def machine_key(name: str) -> Key:
    """Return the key of a machine, as that of a Gateway, from its delivery name."""
    kind, _, rest = name.partition(" ")
    namespace, _, balancer_and_host = rest.partition("/")
    return (kind, namespace, balancer_and_host)
