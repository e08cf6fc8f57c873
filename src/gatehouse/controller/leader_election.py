"""Leader election: one controller acts, the others watch and are ready to take over."""

from __future__ import annotations

import asyncio
import socket
import uuid

import msgspec

from gatehouse.kube import client as kube
from gatehouse.kube.leader_election import Elector


class LeadershipLostError(RuntimeError):
    """Another controller may lead now; this process must exit and may start again."""


def namespaced_name(text: str) -> tuple[str, str]:
    """Parse ``namespace/name``. Raises ValueError."""
    namespace, _, name = text.partition("/")
    if not namespace or not name or "/" in name:
        raise ValueError(f"invalid value {text!r}: must be namespace/name")
    return namespace, name


class Lease(msgspec.Struct, frozen=True):
    """Namespace and name of the Lease that decides the election."""

    namespace: str
    name: str

    @classmethod
    def parse(cls, text: str) -> Lease:
        """Parse ``namespace/name``. Raises ValueError."""
        return cls(*namespaced_name(text))


class Leadership:
    """Participates in the election. Without a Lease this controller always leads."""

    def __init__(self, client: kube.Client, lease: Lease | None, identity: str = "") -> None:
        self._ready, self._elected, self._lost = (asyncio.Event() for _ in range(3))
        self._elector: Elector | None = None
        if lease is not None:
            name = identity or f"{socket.gethostname()}-{uuid.uuid4().hex[:8]}"
            self._elector = Elector(client, lease.namespace, lease.name, name, self._on_change)
        else:
            self._elected.set()

    @property
    def leading(self) -> bool:
        """Return whether this controller leads now."""
        if self._elector is not None and not self._elector.renewed:
            # After a suspension of the process this is evaluated before the elector runs.
            return False
        return self._elected.is_set() and not self._lost.is_set()

    def _on_change(self, leading: bool) -> None:
        if leading:
            self._elected.set()
        elif self._elected.is_set():
            self._lost.set()

    async def elected(self) -> None:
        """Declare this controller ready to lead and wait until it is elected."""
        self._ready.set()
        await self._elected.wait()

    async def run(self) -> None:
        """Participate until cancelled. Raises LeadershipLostError when the Lease is lost."""
        if self._elector is None:
            return
        await self._ready.wait()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._elector.run())
            await self._lost.wait()
            raise LeadershipLostError("the Lease was lost: another controller may lead now")
