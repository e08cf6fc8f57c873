"""Requests that no endpoint answered, in the metrics of data planes, with causes. No I/O."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import msgspec
from prometheus_client.parser import text_string_to_metric_families

from gatehouse.compiler.evaluation.explanation import ExplainedBackend, ExplainedFailure
from gatehouse.inspection.data_plane_metrics import MetricsPage
from gatehouse.inspection.status_report import ReportedBackend, ReportedObject

_COUNTER = "gatehouse_backend_requests_total"

_CAUSES = {
    "connection_failure": "the endpoint refused or closed the connection. Check that {port} is the"
    " right targetPort of {backend}",
    "backend_certificate": "the certificate of the endpoint is not valid for the BackendTLSPolicy"
    " of {backend}. Check its hostname, its CA certificates and the expiry of the certificate",
    "backend_tls": "the TLS handshake failed. Check that the port of the endpoint speaks TLS, as"
    " the BackendTLSPolicy of {backend} requires",
    "backend_protocol": "the endpoint speaks another protocol. Check appProtocol of {backend}, and"
    " whether it needs a BackendTLSPolicy because its port speaks TLS",
    "timeout": "the endpoint of {backend} did not respond in time",
}
"""Causes by the reason of an entry, and what to check."""


def failure_cause(reason: str, backend: str, port: str) -> str:
    """Return the cause that a reason means for a backend, and what to check; empty if not known.

    ``port``: that of the endpoint.
    """
    return _CAUSES.get(reason, "").format(backend=backend, port=port)


def explain_failures(
    backends: Iterable[ExplainedBackend], pages: Sequence[MetricsPage]
) -> tuple[ExplainedFailure, ...]:
    """Return the failed requests to backends since the starts of data planes, by reason."""
    endpoints = {
        entry.backend.rpartition(":")[0]: tuple(endpoint.address for endpoint in entry.endpoints)
        for entry in backends
    }
    return _failures(endpoints, pages)


def with_failures(
    reported: Iterable[ReportedObject], pages: Sequence[MetricsPage]
) -> tuple[ReportedObject, ...]:
    """Return objects whose backends have the failed requests since the starts of data planes."""
    reported = tuple(reported)
    endpoints = {
        f"Service {backend.service}": tuple(endpoint.address for endpoint in backend.addresses)
        for item in reported
        for backend in item.backends
    }
    failures = _failures(endpoints, pages)

    def counted(backend: ReportedBackend) -> ReportedBackend:
        name = f"Service {backend.service}"
        own = tuple(failure for failure in failures if failure.backend == name)
        return msgspec.structs.replace(backend, failures=own)

    return tuple(
        msgspec.structs.replace(item, backends=tuple(map(counted, item.backends)))
        for item in reported
    )


def failure_lines(reported: Iterable[ReportedObject]) -> list[str]:
    """Return one line about each failure of objects from :func:`with_failures`."""
    lines = (
        failure_line(failure)
        for item in reported
        for backend in item.backends
        for failure in backend.failures
    )
    return [*dict.fromkeys(lines)]


def failure_line(failure: ExplainedFailure) -> str:
    """Return one line about failed requests."""
    text = f"{failure.backend}: {failure.requests} of {failure.total}, reason {failure.reason}"
    return f"{text}: {failure.cause}" if failure.cause else text


def _failures(
    endpoints: Mapping[str, tuple[str, ...]], pages: Sequence[MetricsPage]
) -> tuple[ExplainedFailure, ...]:
    """Return the failures of backends. ``endpoints``: the addresses of each."""
    counts = _counts(pages)
    totals = Counter[str]()
    for (label, _), number in counts.items():
        totals[label] += number
    result = []
    for name, addresses in endpoints.items():
        label = name.replace(" ", "/", 1)
        port = addresses[0].rpartition(":")[2] if addresses else "the port of the endpoint"
        for (other, reason), number in sorted(counts.items()):
            if other == label and reason and number:
                cause = failure_cause(reason, name, port)
                result.append(ExplainedFailure(name, reason, number, totals[label], cause))
    return tuple(result)


def _counts(pages: Iterable[MetricsPage]) -> Counter[tuple[str, str]]:
    """Return the numbers of requests by backend and reason."""
    result = Counter[tuple[str, str]]()
    for page in pages:
        lines = [line for line in page.text.splitlines() if line.startswith(_COUNTER)]
        for family in text_string_to_metric_families("\n".join([*lines, ""])):
            for sample in family.samples:
                labels = sample.labels
                result[labels["backend"], labels.get("reason", "")] += int(sample.value)
    return result
