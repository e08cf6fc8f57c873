"""Explanation of the answer to a request, as data: the JSON of `gatehouse explain`."""

from __future__ import annotations

from typing import Literal

import msgspec

AnswerVerdict = Literal["forwarded", "answered", "mixed", "no-answer"]
"""``forwarded``: a backend answers. ``answered``: the proxy answers. ``mixed``: either, by weight.
``no-answer``: the proxy closes the connection, or nothing listens."""


class _Part(msgspec.Struct, frozen=True, rename="camel"):
    """Base of all parts."""


class ExplainedListener(_Part, frozen=True):
    """A listener of a Gateway or ListenerSet."""

    object: str
    """``Kind namespace/name`` of the owner."""
    name: str
    port: int
    protocol: str
    hostname: str
    problems: tuple[str, ...] = ()
    """Messages of findings about it."""


class RuledOutMatch(_Part, frozen=True):
    """A match that was tried before the one that applies, with the reasons why it does not."""

    match: str
    """``Kind namespace/name: spec.rules[0].matches[0]``."""
    reasons: tuple[str, ...]


class UnattachedRoute(_Part, frozen=True):
    """A route for the hostname that the listener does not serve."""

    route: str
    reason: str


class AppliedSource(_Part, frozen=True):
    """A filter, policy or other setting that applies, with the object that it comes from."""

    type: str
    source: str
    detail: str = ""


class ExplainedEndpoint(_Part, frozen=True):
    """An endpoint of a backend."""

    address: str
    ready: bool
    terminating: bool = False
    """It terminates and still serves, and gets requests because no endpoint is ready."""


class ExplainedFailure(_Part, frozen=True):
    """Requests to a backend that no endpoint answered, since the starts of the data planes."""

    backend: str
    """``Service namespace/name``."""
    reason: str
    """Value of the label of the metric, as in the access log."""
    requests: int
    total: int
    """Number of all requests to the backend."""
    cause: str
    """Usual cause, with the field to check; empty if it is not known."""


class ExplainedBackend(_Part, frozen=True):
    """A backend of the matched rule."""

    backend: str
    """``Service namespace/name:port``."""
    weight: int
    share: float
    """Share of the requests in percent."""
    endpoints: tuple[ExplainedEndpoint, ...] = ()
    status: int | None = None
    """Status of the answer to requests of its share; None: the answer is that of the backend."""
    problem: str = ""
    """Reason why it cannot answer; empty if it can."""

    @property
    def ready(self) -> int:
        """Number of ready endpoints."""
        return sum(entry.ready for entry in self.endpoints)

    @property
    def terminating(self) -> int:
        """Number of endpoints that get requests while they terminate."""
        return sum(entry.terminating for entry in self.endpoints)


class ExplainedDataPlane(_Part, frozen=True):
    """A Pod of a data plane."""

    pod: str
    ready: bool
    confirmed_version: str = ""
    """Configuration version that the proxy serves; empty if it is unknown."""
    problem: str = ""


class ExpectedResponse(_Part, frozen=True):
    """The expected answer."""

    verdict: AnswerVerdict
    cause: str
    """One line: the status, if the proxy answers, and the reason."""
    statuses: tuple[int, ...] = ()
    """Statuses that the proxy itself may answer."""
    location: str = ""
    grpc: bool = False
    """The request is a gRPC call, so that a status may be sent as a gRPC status."""


class Explanation(_Part, frozen=True):
    """Everything that decides about the answer to a request."""

    request: str
    gateway: str
    """``namespace/name``."""
    gateway_class: str
    controller: str
    answer: ExpectedResponse
    addresses: tuple[str, ...] = ()
    listener: ExplainedListener | None = None
    hostname: str | None = None
    """Hostname of the virtual host; empty: all other hostnames."""
    match: str = ""
    """``Kind namespace/name: spec.rules[0].matches[0]`` of the match that applies."""
    ruled_out: tuple[RuledOutMatch, ...] = ()
    unattached: tuple[UnattachedRoute, ...] = ()
    applied: tuple[AppliedSource, ...] = ()
    backends: tuple[ExplainedBackend, ...] = ()
    data_planes: tuple[ExplainedDataPlane, ...] = ()
    failures: tuple[ExplainedFailure, ...] = ()
    """Failed requests to the backends, in the metrics of the data planes."""
    notes: tuple[str, ...] = ()
    """Other facts that may change the answer, such as conditions that are not good."""
