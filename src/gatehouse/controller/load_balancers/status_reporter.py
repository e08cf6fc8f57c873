"""Tells what became of load balancers: statuses, and Events on what they were asked for with.

An ExternalLoadBalancer has a status. The ConfigMap of nlk has none: what would stand there is the
entry ``status`` of another ConfigMap beside it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, Literal

import msgspec
import structlog

from gatehouse.apis.resources import CONFIG_MAPS, EXTERNAL_LOAD_BALANCERS, SERVICES
from gatehouse.compiler.frontends import external_load_balancer as front
from gatehouse.controller.load_balancers.balancer import Balancer
from gatehouse.dataplane.delivery import HostReport
from gatehouse.incremental.query import Key
from gatehouse.kube import client as kube
from gatehouse.kube.events import Recorder

log = structlog.get_logger("gatehouse.load_balancers")

DEBOUNCE_SECONDS = 0.5
"""Seconds between two rounds: what changes meanwhile is one write."""

MAX_EVENTS = 10
"""Upstreams of one host whose failures have Events of their own: a host that lost its configuration
fails hundreds alike."""

RETRY_SECONDS = 5.0
"""Seconds before a write that failed is tried again."""

NLK_STATUS: Key = ("ConfigMap", front.NLK_CONFIG_KEY[1], "nlk-config-status")

Objects = Callable[[Key], Mapping[str, Any] | None]


def status_object_key(key: Key) -> Key:
    """Give the object that has the status of a load balancer."""
    return NLK_STATUS if key[0] == CONFIG_MAPS.kind else key


def current_status(key: Key, objects: Objects) -> Mapping[str, Any]:
    """Give the status that a load balancer has."""
    found = objects(status_object_key(key)) or {}
    if key[0] != CONFIG_MAPS.kind:
        return found.get("status") or {}
    held = (found.get("data") or {}).get("status", "{}")
    try:
        found = msgspec.json.decode(held)
    except msgspec.DecodeError:
        return {}
    return found if isinstance(found, dict) else {}


class StatusReporter:
    """Tells of load balancers that were touched, a little later."""

    def __init__(self, client: kube.Client, objects: Objects) -> None:
        self._client = client
        self._objects = objects
        self._recorder = Recorder(client, "gatehouse-controller")
        self._touched: dict[Key, Balancer] = {}
        self._woken = asyncio.Event()
        self._noted: dict[Key, frozenset[_Note]] = {}

    def touch(self, balancer: Balancer) -> None:
        """Tell of it soon."""
        self._touched[balancer.key] = balancer
        self._woken.set()

    def forget(self, key: Key) -> None:
        """Tell nothing of it any more."""
        self._touched.pop(key, None)
        self._noted.pop(key, None)

    async def run(self) -> None:
        """Tell for ever."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._recorder.run())
            while True:
                await self._woken.wait()
                self._woken.clear()
                touched, self._touched = self._touched, {}
                for balancer in touched.values():
                    self._note(balancer)
                    await self._write(balancer)
                await asyncio.sleep(DEBOUNCE_SECONDS)

    async def _write(self, balancer: Balancer) -> None:
        key = balancer.key
        raw = self._objects(key)
        if raw is None:
            return
        wanted = front.status(
            balancer.compiled,
            balancer.owned,
            balancer.version,
            balancer.ordered(),
            raw["metadata"].get("generation", 0),
        )
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        status = front.merged(current_status(key, self._objects), wanted, now)
        if status is None:
            return
        try:
            await self._put(key, raw, status)
        except kube.NotFound:
            return
        except kube.ApiError as error:
            say = log.debug if isinstance(error, kube.Conflict) else log.warning
            say("status not written", load_balancer=balancer.name, error=str(error))
            asyncio.get_running_loop().call_later(RETRY_SECONDS, self.touch, balancer)

    async def _put(self, key: Key, raw: Mapping[str, Any], status: Mapping[str, Any]) -> None:
        if key[0] != CONFIG_MAPS.kind:
            patch = {"status": status}
            await self._client.patch(EXTERNAL_LOAD_BALANCERS, key[2], patch, key[1], "status")
            return
        owner = {"apiVersion": "v1", "kind": key[0], "name": key[2], "uid": raw["metadata"]["uid"]}
        made = {
            "apiVersion": "v1",
            "kind": CONFIG_MAPS.kind,
            "metadata": {
                "name": NLK_STATUS[2],
                "namespace": NLK_STATUS[1],
                "ownerReferences": [owner],
            },
            "data": {"status": msgspec.json.encode(status).decode()},
        }
        try:
            await self._client.update(CONFIG_MAPS, made)
        except kube.NotFound:
            await self._client.create(CONFIG_MAPS, made)

    def _note(self, balancer: Balancer) -> None:
        """Make Events of what is so now and was not before."""
        before = self._noted.get(balancer.key, frozenset())
        followed = frozenset(_followed(balancer))
        # Once followed, it is told no more: nodes come and go.
        now = frozenset(_troubles(balancer)) | (
            followed if _in_step(balancer) else followed & before
        )
        self._noted[balancer.key] = now
        for note in sorted(now - before):
            raw = self._objects(note.about)
            if raw is not None:
                head = {"kind": note.about[0], "apiVersion": _VERSIONS[note.about[0]]}
                self._recorder.record({**raw, **head}, note.type, note.reason, note.message)


class _Note(msgspec.Struct, frozen=True, order=True):
    """What an Event says."""

    about: Key
    type: Literal["Normal", "Warning"]
    reason: str
    message: str


def _in_step(balancer: Balancer) -> bool:
    reports = balancer.ordered()
    return bool(reports and balancer.version) and all(
        each.version == balancer.version and not each.trouble for each in reports
    )


def _followed(balancer: Balancer) -> Iterator[_Note]:
    services = dict(balancer.compiled.claimed)
    asked = balancer.compiled.balancer
    for each in asked.upstreams if asked is not None else ():
        message = f"upstream {each.name} is kept in step by {balancer.name}"
        yield _Note(services[each.name], "Normal", "UpstreamSynced", message)


def _others(balancer: Balancer, report: HostReport) -> Iterator[_Note]:
    if len(report.failing) > MAX_EVENTS:
        message = f"{report.host}: others fail too, beside those that Events tell of"
        yield _Note(balancer.key, "Warning", "UpstreamSyncFailed", message)


def _troubles(balancer: Balancer) -> Iterator[_Note]:
    compiled = balancer.compiled
    for finding in compiled.findings:
        yield _Note(balancer.key, "Warning", finding.reason.value, finding.message)
    for note in compiled.notes:
        yield _Note(note.service, "Warning", note.finding.reason.value, note.finding.message)
    services = {str(name): service for name, service in balancer.owned.items()}
    for report in balancer.ordered():
        if report.error:
            yield _Note(balancer.key, "Warning", "HostSyncFailed", f"{report.host}: {report.error}")
        for name, words in report.failing[:MAX_EVENTS]:
            what = f"upstream {name}" if name in services else name
            message = f"{report.host}: {what}: {words}"
            yield _Note(services.get(name, balancer.key), "Warning", "UpstreamSyncFailed", message)
        yield from _others(balancer, report)


_VERSIONS = {
    each.kind: each.api_version for each in (SERVICES, CONFIG_MAPS, EXTERNAL_LOAD_BALANCERS)
}
