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
_ENDPOINT_COUNTER = "gatehouse_agent_endpoint_failures_total"

_CONNECTION_FAILURE = "connection_failure"
"""Reason that NGINX also counts for failed TLS handshakes."""

_REFUSED = (
    "the endpoint refused or closed the connection. Check that {port} is the right targetPort of"
    " {backend}"
)
"""Cause of connection failures of NGINX that were no handshakes."""

_CAUSES = {
    "connection_failure": "the endpoint refused or closed the connection, or a TLS handshake of"
    " NGINX with it failed. Check that {port} is the right targetPort of {backend}",
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
    counts = _counts(pages, _COUNTER, "backend")
    attempts = _counts(pages, _ENDPOINT_COUNTER, "endpoint")
    totals = Counter[str]()
    for (label, _), number in counts.items():
        totals[label] += number
    result = []
    for name, addresses in endpoints.items():
        label = name.replace(" ", "/", 1)
        for (other, reason), number in sorted(counts.items()):
            if other == label and reason and number:
                cause = _cause(reason, name, addresses, attempts)
                result.append(ExplainedFailure(name, reason, number, totals[label], cause))
    return tuple(result)


def _cause(
    reason: str, backend: str, addresses: Sequence[str], attempts: Mapping[tuple[str, str], int]
) -> str:
    """Return the cause of a reason. ``attempts``: failed attempts by address and reason."""
    texts = {**_CAUSES, _CONNECTION_FAILURE: _REFUSED}
    causes = {
        own: (texts[own], address)
        for (address, own), number in sorted(attempts.items(), key=lambda item: item[1])
        if reason == _CONNECTION_FAILURE and address in addresses and own in texts and number
    }
    first = addresses[0] if addresses else ""
    return "; ".join(
        text.format(backend=backend, port=address.rpartition(":")[2] or "the port of the endpoint")
        for text, address in reversed(causes.values() or [(_CAUSES.get(reason, ""), first)])
    )


def _counts(pages: Iterable[MetricsPage], counter: str, label: str) -> Counter[tuple[str, str]]:
    """Return the values of a counter by a label and the label ``reason``."""
    result = Counter[tuple[str, str]]()
    for page in pages:
        lines = [line for line in page.text.splitlines() if line.startswith(counter)]
        for family in text_string_to_metric_families("\n".join([*lines, ""])):
            for sample in family.samples:
                labels = sample.labels
                result[labels[label], labels.get("reason", "")] += int(sample.value)
    return result
