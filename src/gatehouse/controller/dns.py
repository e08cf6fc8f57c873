"""Keeps DNSEndpoints of external-dns what HostedAPIServers want; what is left of others goes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

import structlog

from gatehouse.apis import resources
from gatehouse.frontends import hosted_apiserver
from gatehouse.kube import apply
from gatehouse.kube import client as kube
from gatehouse.query import Key
from gatehouse.table import Table

log = structlog.get_logger("gatehouse.dns")

Name = tuple[str, str]
Objects = Mapping[Name, Mapping[str, Any]]

FIRST_RETRY, LAST_RETRY = 0.5, 60.0
"""Seconds before a failed write is tried again; doubles from the first to the last."""


class DnsEndpoints:
    """One object for each HostedAPIServer that wants its names published, of the same name."""

    def __init__(
        self, client: kube.Client, servers: Callable[[], Objects], endpoints: Callable[[], Objects]
    ) -> None:
        """``servers``, ``endpoints``: HostedAPIServers and DNSEndpoints as last seen."""
        self._client = client
        self._servers = servers
        self._endpoints = endpoints
        self._wanted: Table[Key, hosted_apiserver.Records] | None = None
        """None before the first pass: nothing is withdrawn that may be wanted."""
        self._due: dict[Name, None] = {}
        self._failures: dict[Name, int] = {}
        self._woken = asyncio.Event()

    def want(self, records: Table[Key, hosted_apiserver.Records]) -> None:
        """Say what is to be published from now on."""
        before: Table[Key, hosted_apiserver.Records] = self._wanted or Table()
        self._wanted = records
        for key, _, _ in before.until(records):
            self.touch((key[1], key[2]))
        self._woken.set()

    def touch(self, name: Name) -> None:
        """Look again at an object: somebody may have changed it, or its owner."""
        self._due[name] = None
        self._woken.set()

    async def run(self) -> None:
        """Write for ever."""
        while True:
            await self._woken.wait()
            self._woken.clear()
            while self._due and self._wanted is not None:
                name = next(iter(self._due))
                del self._due[name]
                await self._reconcile(name)

    async def _reconcile(self, name: Name) -> None:
        try:
            known: Table[Key, hosted_apiserver.Records] = self._wanted or Table()
            wanted = known.get((hosted_apiserver.KIND, *name))
            if wanted is not None:
                await self._ensure(name, wanted)
            else:
                await self._remove(name)
        except (kube.ApiError, apply.NotOurs) as error:
            failures = self._failures[name] = self._failures.get(name, 0) + 1
            delay = min(LAST_RETRY, FIRST_RETRY * 2.0 ** (failures - 1))
            log.warning("not published", name="/".join(name), error=str(error))
            asyncio.get_running_loop().call_later(delay, self.touch, name)
        else:
            self._failures.pop(name, None)

    async def _ensure(self, name: Name, wanted: hosted_apiserver.Records) -> None:
        server = self._servers().get(name)
        if server is None or not wanted.records:
            return
        owner = {
            "apiVersion": resources.HOSTED_API_SERVERS.api_version,
            "kind": hosted_apiserver.KIND,
            "name": name[1],
            "uid": server["metadata"]["uid"],
            "controller": True,
            "blockOwnerDeletion": False,
        }
        made = hosted_apiserver.endpoint(name, owner, wanted)
        outcome = await apply.ensure(self._client, resources.DNS_ENDPOINTS, made)
        log.debug("published", outcome=str(outcome))

    async def _remove(self, name: Name) -> None:
        known = self._endpoints().get(name)
        if known is None:
            return
        owner = apply.controller_of(known)
        label = (known["metadata"].get("labels") or {}).get(apply.MANAGED_BY)
        if owner is None or owner["kind"] != hosted_apiserver.KIND or label != apply.MANAGER:
            return
        try:
            await self._client.delete(
                resources.DNS_ENDPOINTS, name[1], name[0], uid=known["metadata"]["uid"]
            )
        except kube.NotFound:
            return
        log.debug("withdrawn", name="/".join(name))
