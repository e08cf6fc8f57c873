"""Reports of the state of NGINX to the control plane."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Protocol

import grpc.aio

from gatehouse.agent.nginx.instance_info import message_metadata
from gatehouse.agent.nginx.mpi_client import MPIClient
from gatehouse.wire.mpi.v1 import command_pb2

_UNHEALTHY = command_pb2.InstanceHealth.InstanceHealthStatus.INSTANCE_HEALTH_STATUS_UNHEALTHY

COMPARE_SECONDS = 5.0
"""Time in seconds after which the state is compared again, so that a lost report is repeated."""


class StateSource(Protocol):
    """The present state of an agent and its NGINX."""

    def resource(self) -> command_pb2.Resource:
        """Return the description of the Pod with its agent and its NGINX."""

    def health(self) -> command_pb2.InstanceHealth:
        """Return the health of NGINX."""


class StateReports:
    """Reports the state of NGINX when it differs from the reported one, or on request.

    An apply that NGINX rejects changes no state and is no reason for a report.
    """

    def __init__(self, source: StateSource) -> None:
        self._source = source
        self._changed = asyncio.Event()
        self._requested = False
        self._unhealthy: list[command_pb2.InstanceHealth] = []
        """The last state in which NGINX was not healthy, until it is reported: NGINX may run again
        before."""

    def notify_changed(self) -> None:
        """Compare the state with the reported one at once."""
        health = self._source.health()
        if health.instance_health_status == _UNHEALTHY:
            self._unhealthy = [health]
        self._changed.set()

    def request(self) -> None:
        """Report the state, even if it is the reported one."""
        self._requested = True
        self._changed.set()

    async def run(self, connection: MPIClient, reported: command_pb2.Resource) -> None:
        """Report to a control plane that knows the description ``reported``, until cancelled."""
        reported_health: command_pb2.InstanceHealth | None = None
        requested, self._unhealthy = False, []
        while True:
            # Cleared first: NGINX may start while its death is being reported.
            requested, self._requested = requested or self._requested, False
            self._changed.clear()
            resource = self._source.resource()
            states, self._unhealthy = [*self._unhealthy, self._source.health()], []
            with contextlib.suppress(grpc.aio.AioRpcError, OSError):
                if requested or resource != reported:
                    # The control plane forgets the reported health at each status.
                    reported_health = None
                    await connection.update_status(
                        command_pb2.UpdateDataPlaneStatusRequest(
                            message_meta=message_metadata(), resource=resource
                        )
                    )
                    reported, requested = resource, False
                for health in states:
                    if health == reported_health:
                        continue
                    await connection.update_health(
                        command_pb2.UpdateDataPlaneHealthRequest(
                            message_meta=message_metadata(), instance_healths=[health]
                        )
                    )
                    reported_health = health
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(COMPARE_SECONDS):
                    await self._changed.wait()
