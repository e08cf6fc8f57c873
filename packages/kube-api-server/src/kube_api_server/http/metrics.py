"""Metrics of the server, named as in kube-apiserver."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from kube_api_server.http.requests import RequestTarget
from kube_api_server.storage.store import ObjectStore

METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"
"""Media type of the text format of Prometheus."""

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0)


class RequestMetrics:
    """Request metrics."""

    def __init__(self, store: ObjectStore, prefix: str) -> None:
        """Register the metrics. `prefix` begins names that kube-apiserver does not have."""
        self.registry = CollectorRegistry()
        labels = ("verb", "group", "version", "resource", "subresource", "scope")
        self._requests = Counter(
            "apiserver_request",
            "Requests by verb, resource and HTTP code.",
            (*labels, "code"),
            registry=self.registry,
        )
        self._seconds = Histogram(
            "apiserver_request_duration_seconds",
            "Request duration in seconds, without watches and logs.",
            labels,
            buckets=_SECONDS,
            registry=self.registry,
        )
        self.in_flight = Gauge(
            "apiserver_current_inflight_requests",
            "Requests in flight.",
            ("request_kind",),
            registry=self.registry,
        )
        self.rejected = Counter(
            "apiserver_request_terminations",
            "Requests rejected because too many were in flight.",
            ("code",),
            registry=self.registry,
        )
        self.long_running = Gauge(
            "apiserver_longrunning_requests",
            "Open watches and followed logs.",
            ("verb",),
            registry=self.registry,
        )
        self.audit_errors = Counter(
            "apiserver_audit_error",
            "Audit records that were dropped, because the log could not be written.",
            ("plugin",),
            registry=self.registry,
        ).labels("log")
        self._known: dict[tuple[str, ...], tuple[Counter, Histogram]] = {}
        self.registry.register(_Objects(store, prefix))

    def observe(
        self, verb: str, target: RequestTarget | None, code: int, seconds: float | None
    ) -> None:
        """Count one response. `seconds` is None for streams, which have no duration."""
        labels = (*_labels(verb, target), str(code))
        cached = self._known.get(labels)
        if cached is None:
            children = self._requests.labels(*labels), self._seconds.labels(*labels[:-1])
            cached = self._known[labels] = children
        cached[0].inc()
        if seconds is not None:
            cached[1].observe(seconds)

    def text(self) -> bytes:
        """Return all metrics in Prometheus text format."""
        return generate_latest(self.registry)


def _labels(verb: str, target: RequestTarget | None) -> tuple[str, ...]:
    verb_label = {"create": "POST", "update": "PUT"}.get(verb, verb.upper())
    if target is None:
        return (verb_label, "", "", "", "", "")
    resource = target.served.resource
    scope = "resource" if target.name else "namespace" if target.namespace else "cluster"
    return (
        verb_label,
        resource.group,
        resource.version,
        resource.plural,
        target.subresource,
        scope,
    )


class _Objects(Collector):
    """Counts objects when metrics are collected."""

    def __init__(self, store: ObjectStore, prefix: str) -> None:
        self._store, self._prefix = store, prefix

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Yield the number of stored objects by resource, and the state of the storage."""
        family = GaugeMetricFamily(
            "apiserver_storage_objects", "Stored objects by resource.", labels=["resource"]
        )
        for prefix, count in self._store.counts().items():
            _, group, plural = prefix.split("/")
            family.add_metric([plural if group == "core" else f"{plural}.{group}"], count)
        yield family
        revision = GaugeMetricFamily(
            f"{self._prefix}_storage_revision",
            "Newest storage revision that is visible to reads.",
        )
        revision.add_metric([], self._store.revision)
        yield revision
        full = GaugeMetricFamily(
            f"{self._prefix}_storage_full",
            "1 if the last write was rejected because the storage has no space left, else 0.",
        )
        full.add_metric([], int(self._store.full))
        yield full
