"""Writes the statuses of load balancers and records Events on the objects that request them.

An ExternalLoadBalancer has a status. A ConfigMap of nlk has none: its status is the entry
``status`` of another ConfigMap in the same namespace.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, Literal

import msgspec
import structlog

from gatehouse.apis.event_reasons import EventReason
from gatehouse.apis.resources import CONFIG_MAPS, EXTERNAL_LOAD_BALANCERS, SERVICES
from gatehouse.compiler.frontends import external_load_balancer as front
from gatehouse.controller.load_balancers.balancer import Balancer
from gatehouse.dataplane.delivery import HostReport
from gatehouse.incremental.query import Key
from gatehouse.kube import client as kube
from gatehouse.kube.events import Recorder
from kube_base.runtime.backoff import BackoffPolicy
from kube_base.runtime.work_queue import RetryError, WorkQueue

log = structlog.get_logger("gatehouse.load_balancers")

_DEBOUNCE_SECONDS = 0.5
"""Minimum time in seconds between writes of one status. Changes in this time are one write."""

MAX_EVENTS = 10
"""Maximum number of Events for failing upstreams of one host. A host that lost its configuration
may fail hundreds."""

_RETRIES = BackoffPolicy(first=5.0, maximum=5.0)
"""Delay before a failed write is repeated."""

_Objects = Callable[[Key], Mapping[str, Any] | None]


def status_object_key(key: Key) -> Key:
    """Return the key of the object that has the status of a load balancer."""
    return (*key[:2], f"{key[2]}-status") if key[0] == CONFIG_MAPS.kind else key


def current_status(key: Key, objects: _Objects) -> Mapping[str, Any]:
    """Return the current status of a load balancer; empty if it has none."""
    status_object = objects(status_object_key(key)) or {}
    if key[0] != CONFIG_MAPS.kind:
        return status_object.get("status") or {}
    text = (status_object.get("data") or {}).get("status", "{}")
    try:
        status = msgspec.json.decode(text)
    except msgspec.DecodeError:
        return {}
    return status if isinstance(status, dict) else {}


class StatusReporter:
    """Writes status and Events of changed load balancers, debounced by ``DEBOUNCE_SECONDS``."""

    def __init__(self, client: kube.Client, objects: _Objects) -> None:
        self._client = client
        self._objects = objects
        self._recorder = Recorder(client, "gatehouse-controller")
        self._balancers: dict[Key, Balancer] = {}
        self._queue = WorkQueue(self._report, _RETRIES, debounce=_DEBOUNCE_SECONDS)
        self._recorded: dict[Key, frozenset[_EventContent]] = {}

    def enqueue(self, balancer: Balancer) -> None:
        """Write the status of a load balancer soon and record its Events."""
        self._balancers[balancer.key] = balancer
        self._queue.add(balancer.key)

    def forget(self, key: Key) -> None:
        """Drop a load balancer that is not requested any longer."""
        self._balancers.pop(key, None)
        self._recorded.pop(key, None)
        self._queue.forget(key)

    async def run(self) -> None:
        """Write until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._recorder.run())
            group.create_task(self._queue.run())

    async def _report(self, key: Key) -> None:
        balancer = self._balancers.get(key)
        if balancer is not None:
            self._record_events(balancer)
            await self._write(balancer)

    async def _write(self, balancer: Balancer) -> None:
        key = balancer.key
        raw = self._objects(key)
        if raw is None:
            return
        desired = front.balancer_status(
            balancer.compiled,
            balancer.owned,
            balancer.version,
            balancer.ordered(),
            raw["metadata"].get("generation", 0),
        )
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        status = front.merge_balancer_status(current_status(key, self._objects), desired, now)
        if status is None:
            return
        try:
            await self._put(key, raw, status)
        except kube.NotFound:
            return
        except kube.ApiError as error:
            log_method = log.debug if isinstance(error, kube.Conflict) else log.warning
            log_method("status not written", load_balancer=balancer.name, error=str(error))
            raise RetryError from error

    async def _put(self, key: Key, raw: Mapping[str, Any], status: Mapping[str, Any]) -> None:
        if key[0] != CONFIG_MAPS.kind:
            patch = {"status": status}
            await self._client.patch(EXTERNAL_LOAD_BALANCERS, key[2], patch, key[1], "status")
            return
        owner = {"apiVersion": "v1", "kind": key[0], "name": key[2], "uid": raw["metadata"]["uid"]}
        config_map = {
            "apiVersion": "v1",
            "kind": CONFIG_MAPS.kind,
            "metadata": {
                "name": status_object_key(key)[2],
                "namespace": key[1],
                "ownerReferences": [owner],
            },
            "data": {"status": msgspec.json.encode(status).decode()},
        }
        try:
            await self._client.update(CONFIG_MAPS, config_map)
        except kube.NotFound:
            await self._client.create(CONFIG_MAPS, config_map)

    def _record_events(self, balancer: Balancer) -> None:
        """Record Events for new facts, compared with the previous call."""
        previous = self._recorded.get(balancer.key, frozenset())
        followed = frozenset(_followed(balancer))
        # Recorded only once: changes of nodes must not repeat it.
        current = frozenset(_problems(balancer)) | (
            followed if _is_synchronized(balancer) else followed & previous
        )
        self._recorded[balancer.key] = current
        for event in sorted(current - previous):
            raw = self._objects(event.regarding)
            if raw is not None:
                type_meta = {
                    "kind": event.regarding[0],
                    "apiVersion": _VERSIONS[event.regarding[0]],
                }
                self._recorder.record({**raw, **type_meta}, event.type, event.reason, event.message)


class _EventContent(msgspec.Struct, frozen=True, order=True):
    """Content of an Event."""

    regarding: Key
    type: Literal["Normal", "Warning"]
    reason: str
    message: str


def _is_synchronized(balancer: Balancer) -> bool:
    reports = balancer.ordered()
    return bool(reports and balancer.version) and all(
        report.version == balancer.version and not report.trouble for report in reports
    )


def _followed(balancer: Balancer) -> Iterator[_EventContent]:
    services = dict(balancer.compiled.claimed)
    compiled = balancer.compiled.balancer
    for upstream in compiled.upstreams if compiled is not None else ():
        message = f"upstream {upstream.name} synchronized by {balancer.name}"
        yield _EventContent(services[upstream.name], "Normal", EventReason.UPSTREAM_SYNCED, message)


def _more_failures(balancer: Balancer, report: HostReport) -> Iterator[_EventContent]:
    if len(report.failing) > MAX_EVENTS:
        message = f"{report.host}: more upstreams failed; Events show the first {MAX_EVENTS}"
        yield _EventContent(balancer.key, "Warning", EventReason.UPSTREAM_SYNC_FAILED, message)


def _problems(balancer: Balancer) -> Iterator[_EventContent]:
    compiled = balancer.compiled
    for finding in compiled.findings:
        yield _EventContent(balancer.key, "Warning", finding.reason.value, finding.message)
    for note in compiled.notes:
        yield _EventContent(
            note.service, "Warning", note.finding.reason.value, note.finding.message
        )
    services = {str(name): service for name, service in balancer.owned.items()}
    for report in balancer.ordered():
        if report.error:
            yield _EventContent(
                balancer.key,
                "Warning",
                EventReason.HOST_SYNC_FAILED,
                f"{report.host}: {report.error}",
            )
        for name, reason in report.failing[:MAX_EVENTS]:
            subject = f"upstream {name}" if name in services else name
            message = f"{report.host}: {subject}: {reason}"
            yield _EventContent(
                services.get(name) or balancer.key,
                "Warning",
                EventReason.UPSTREAM_SYNC_FAILED,
                message,
            )
        yield from _more_failures(balancer, report)


_VERSIONS = {
    resource.kind: resource.api_version
    for resource in (SERVICES, CONFIG_MAPS, EXTERNAL_LOAD_BALANCERS)
}
