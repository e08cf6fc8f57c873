"""Ceilings of what one object, the objects of one namespace, or all objects may claim of a data
plane. No I/O.

A shared Gateway serves objects of many authors, and NGINX allocates much of what they ask for when
it starts, in each process. The operator sets the ceilings: for the installation
(``--resource-limits``), and for a GatewayClass (``spec.resourceLimits`` of its parameters). The
parameters of a Gateway may lower them. They hold for policies, routes and the parameters of
Gateways, for every proxy. They do not hold for parameters of GatewayClasses, which the operator
writes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import msgspec

RESOURCE_LIMITS_OPTION = "--resource-limits"
"""Option of the controller that sets the ceilings."""


class ResourceLimit(msgspec.Struct, frozen=True):
    """A ceiling of one setting."""

    subject: str
    """The setting, and whose claims are added up."""
    unit: Literal["bytes", "count", "seconds", "cores"]
    default: int
    bytes_per_unit: float | None
    """Measured memory of one unit in bytes; None: not memory of a proxy.

    NGINX 1.28, x86-64. Connections are claimed at start in each process. Zones are shared by all
    processes and filled in use, as buffers are. The regular expression has 1,000 characters.
    """
    of_installation: bool = False
    """True if the ceiling protects the controller. Parameters cannot set it."""


RESOURCE_LIMITS: Mapping[str, ResourceLimit] = {
    "keepAliveConnections": ResourceLimit(
        "idle connections to the endpoints of one Service port", "count", 1024, 152
    ),
    "keepAliveConnectionsPerNamespace": ResourceLimit(
        "the same, of all Service ports with a policy in a namespace", "count", 16384, 152
    ),
    "keepAliveConnectionsPerGateway": ResourceLimit(
        "the same, of all policies that a Gateway serves", "count", 131_072, 152
    ),
    "zoneBytes": ResourceLimit(
        "shared memory of one rate limit, or of the upstream of one Service port",
        *("bytes", 32 << 20, 1),
    ),
    "zoneBytesPerNamespace": ResourceLimit(
        "the same, of all policies in a namespace", "bytes", 256 << 20, 1
    ),
    "zoneBytesPerGateway": ResourceLimit(
        "the same, of all policies that a Gateway serves", "bytes", 1 << 30, 1
    ),
    "bodyBufferBytes": ResourceLimit(
        "buffer for the body of one request in progress", "bytes", 1 << 20, 1
    ),
    "wholeBodyBytes": ResourceLimit(
        "body of unknown length that Envoy holds to enforce `body.maxSize`", "bytes", 16 << 20, 1
    ),
    "responseBufferBytes": ResourceLimit(
        "buffers for one response in progress, and for its compression", "bytes", 2 << 20, 1
    ),
    "regularExpressions": ResourceLimit(
        "regular expressions in the matches of one route", "count", 128, 14_200
    ),
    "regularExpressionsPerGateway": ResourceLimit(
        "the same, of all routes that a Gateway serves", "count", 8192, 14_200
    ),
    "routesPerNamespace": ResourceLimit(
        "routes of a namespace that are served, the oldest ones, of all kinds and Gateways",
        *("count", 10_000, None),
        of_installation=True,
    ),
    "routesPerGateway": ResourceLimit(
        "routes that a Gateway serves, of all kinds and namespaces", "count", 30_000, None
    ),
    "replicas": ResourceLimit("Pods of one Gateway", "count", 32, None),
    "cpu": ResourceLimit("requests and limits of one Pod", "cores", 16, None),
    "memory": ResourceLimit("requests and limits of one Pod", "bytes", 16 << 30, None),
    "ephemeralStorage": ResourceLimit("requests and limits of one Pod", "bytes", 32 << 30, None),
    "gracePeriodSeconds": ResourceLimit(
        "termination grace period, and sleep before it", "seconds", 3600, None
    ),
}
"""All ceilings, by name."""

PARAMETER_LIMITS: Mapping[str, ResourceLimit] = {
    name: limit for name, limit in RESOURCE_LIMITS.items() if not limit.of_installation
}
"""Ceilings that parameters may set."""


RESOURCE_LIMITS_FIELD = "spec.resourceLimits"
"""Field of parameters that sets ceilings."""

Ceilings = tuple[tuple[str, int], ...]
"""Ceilings by name."""


class ResourceLimits(msgspec.Struct, frozen=True):
    """Ceilings of an installation or of a Gateway: defaults, and those that are set."""

    operator: Ceilings = ()
    """Ceilings that the option sets."""
    parameters: tuple[tuple[str, int, str], ...] = ()
    """Ceilings that parameters set, each with the object. They override those of the option."""

    def of(self, name: str) -> int:
        """Return a ceiling."""
        return self._with_source(name)[0]

    def override(self, ceilings: Ceilings, source: str) -> ResourceLimits:
        """Return these ceilings with others in their place. ``source``: the object that sets
        them."""
        if not ceilings:
            return self
        names = dict(ceilings)
        remaining = (parameter for parameter in self.parameters if parameter[0] not in names)
        added = ((name, value, source) for name, value in ceilings)
        return msgspec.structs.replace(self, parameters=tuple(sorted((*remaining, *added))))

    def lower(self, ceilings: Ceilings, source: str) -> tuple[ResourceLimits, tuple[str, ...]]:
        """Return these ceilings with lower ones in their place, and messages about higher ones."""
        lower = tuple((name, value) for name, value in ceilings if value < self.of(name))
        excess = tuple(
            f"{RESOURCE_LIMITS_FIELD}.{name}: {message}"
            for name, value in ceilings
            if (message := self.excess(name, value))
        )
        return self.override(lower, source), excess

    def exceeded(self, name: str, subject: str) -> str:
        """Return why more than a ceiling is not allowed, without the amount.

        The amount would change the status of an object with each new one. ``subject``: its name.
        """
        return self.excess(name, self.of(name) + 1, subject)

    def excess(self, name: str, value: float, description: object = None) -> str:
        """Return the message about a value above its ceiling; empty if it is not above.

        ``description``: the value as its author wrote it.
        """
        limit, source = self._with_source(name)
        if value <= limit:
            return ""
        text = value if description is None else description
        return f"{text} is more than the limit of {limit} {self._unit(name)}({name}, {source})"

    def _with_source(self, name: str) -> tuple[int, str]:
        """Return a ceiling, and what sets it."""
        for own, value, source in self.parameters:
            if own == name:
                return value, f"{RESOURCE_LIMITS_FIELD} of {source}"
        if name in (operator_limits := dict(self.operator)):
            return operator_limits[name], RESOURCE_LIMITS_OPTION
        return RESOURCE_LIMITS[name].default, f"default of {RESOURCE_LIMITS_OPTION}"

    @staticmethod
    def _unit(name: str) -> str:
        unit = RESOURCE_LIMITS[name].unit
        return "" if unit == "count" else f"{unit} "


def parse_limits(text: str) -> ResourceLimits:
    """Parse a JSON object of ceilings by name. Raises ValueError."""
    try:
        document = msgspec.json.decode(text or "{}", type=dict[str, Any])
    except msgspec.DecodeError as error:
        raise ValueError(f"must be a JSON object of integers by name: {error}") from error
    ceilings, problems = read_ceilings(document)
    if problems:
        raise ValueError("; ".join(problems))
    return ResourceLimits(ceilings)


def read_ceilings(
    document: Mapping[str, Any], known: Mapping[str, ResourceLimit] = RESOURCE_LIMITS
) -> tuple[Ceilings, tuple[str, ...]]:
    """Return the valid ceilings of an object by name, sorted, and the problems of the others."""
    problems = {
        name: problem
        for name, value in document.items()
        if (problem := _problem(name, value, known))
    }
    valid = ((name, value) for name, value in document.items() if name not in problems)
    return tuple(sorted(valid)), tuple(f"{name}: {problem}" for name, problem in problems.items())


def _problem(name: str, value: object, known: Mapping[str, ResourceLimit]) -> str:
    """Return the problem of a ceiling; empty if it is valid."""
    if name not in known:
        return f"must be one of {', '.join(known)}"
    if not isinstance(value, int) or isinstance(value, bool):
        return f"{value!r} must be an integer"
    return "must not be negative" if value < 0 else ""
