"""MPI session: registration, file overview, requests and responses, and reconnection."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import structlog

from gatehouse.agent.channel import configured_token
from gatehouse.agent.nginx.apply import Applier
from gatehouse.agent.nginx.apply_steps import ApplyResult
from gatehouse.agent.nginx.coalescing_queue import CoalescingQueue
from gatehouse.agent.nginx.file_fetcher import FileFetcher
from gatehouse.agent.nginx.file_overview import Overviews
from gatehouse.agent.nginx.instance_info import InstanceInfo, message_metadata
from gatehouse.agent.nginx.manifests import EMPTY_MANIFEST
from gatehouse.agent.nginx.mpi_client import MPIClient, Requests
from gatehouse.agent.nginx.plus import actions
from gatehouse.agent.nginx.revision_store import RevisionStore
from gatehouse.agent.nginx.state_reports import StateReports
from gatehouse.agent.options import AgentOptions
from gatehouse.agent.reconnect import ReconnectLoop
from gatehouse.wire.mpi.v1 import command_pb2, common_pb2, files_pb2
from kube_base.runtime.private_files import UnsafePathError

log = structlog.get_logger("gatehouse.agent")

_STATUS = common_pb2.CommandResponse.CommandStatus
_TYPE = command_pb2.DataPlaneResponse.RequestType


Responses = asyncio.Queue[command_pb2.DataPlaneResponse | None]
"""Responses to send to the control plane. None ends the stream of this connection."""


class ApplyRequest(msgspec.Struct, frozen=True):
    """An apply request and the correlation ID of its response."""

    correlation: str
    version: str
    overview: files_pb2.FileOverview


async def _outgoing(responses: Responses) -> AsyncIterator[command_pb2.DataPlaneResponse]:
    while (response := await responses.get()) is not None:
        yield response


class MPISession:
    """Keeps a connection to one control plane and handles its requests."""

    def __init__(
        self,
        options: AgentOptions,
        instance_info: InstanceInfo,
        applier: Applier,
        revisions: RevisionStore,
        plus_api: Path | None = None,
    ) -> None:
        """`plus_api`: socket of the NGINX Plus API, or None for open-source NGINX."""
        self._reconnecting = ReconnectLoop(options.server_host)
        self._plus_api = plus_api
        self._action_tasks: set[asyncio.Task[None]] = set()
        self._options = options
        self._instance_info = instance_info
        self._applier = applier
        self._token = configured_token(options)
        self._connection: MPIClient | None = None
        self._fetcher = FileFetcher(lambda: self._connection, revisions)
        self._overviews = Overviews(options.allowed_directories)
        self._queue: CoalescingQueue[ApplyRequest] = CoalescingQueue()
        self._request_queued = asyncio.Event()
        self._state_reports = StateReports(instance_info)
        self._responses: Responses = asyncio.Queue()

    def notify_changed(self) -> None:
        """Report that NGINX started, died or has new workers."""
        self._state_reports.notify_changed()

    @property
    def connected(self) -> bool:
        """Return whether the control plane has accepted the connection."""
        return self._reconnecting.connected

    async def run(self) -> None:
        """Stay connected until cancelled. No error of the control plane ends this."""
        await self._reconnecting.run(self._connect_once)

    async def _connect_once(self) -> None:
        connection = MPIClient(self._options, self._token, self._instance_info.resource_id)
        self._connection = connection
        tasks: list[asyncio.Task[None]] = []
        try:
            resource = self._instance_info.resource()
            await connection.create_connection(
                command_pb2.CreateConnectionRequest(
                    message_meta=message_metadata(), resource=resource
                )
            )
            await self._report_overview(connection)
            call = connection.subscribe(_outgoing(self._new_responses()))
            tasks = [
                asyncio.create_task(self._state_reports.run(connection, resource)),
                asyncio.create_task(self._note_connected(call)),
            ]
            async for request in call:
                self._receive(request)
        finally:
            self._connection = None
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await connection.close()

    async def _note_connected(self, call: Requests) -> None:
        # Do not wait for the first request: an up-to-date agent may never get one.
        await call.initial_metadata()
        if not call.done():
            self._reconnecting.established()

    def _new_responses(self) -> Responses:
        """Return a new queue for a connection, with the responses that were not sent yet.

        gRPC still waits for responses to send on a lost connection and would take the next one.
        """
        responses: Responses = asyncio.Queue()
        while not self._responses.empty():
            responses.put_nowait(self._responses.get_nowait())
        self._responses.put_nowait(None)
        self._responses = responses
        return responses

    async def _report_overview(self, connection: MPIClient) -> None:
        # Report nothing during an apply, because the served files are about to change.
        served = EMPTY_MANIFEST if self._queue.in_progress else self._applier.served()
        await connection.update_overview(
            files_pb2.UpdateOverviewRequest(
                message_meta=message_metadata(), overview=self._instance_info.overview(served)
            )
        )

    def _receive(self, request: command_pb2.ManagementPlaneRequest) -> None:
        correlation = request.message_meta.correlation_id
        match request.WhichOneof("request"):
            case "config_apply_request":
                self._enqueue(correlation, request.config_apply_request.overview)
            case "action_request":
                self._start_action(correlation, request.action_request)
            case "health_request":
                self._state_reports.request()
                text = "Successfully sent health status update"
                self._respond(correlation, _TYPE.HEALTH_REQUEST, ApplyResult(text))
            case "status_request":
                self._state_reports.request()
                text = "Successfully sent status update"
                self._respond(correlation, _TYPE.STATUS_REQUEST, ApplyResult(text))
            case other:
                error = f"{other} is not supported by this agent"
                failed = ApplyResult("Unable to handle request", error)
                self._respond(correlation, _TYPE.UNSPECIFIED_REQUEST, failed)

    def _enqueue(self, correlation: str, overview: files_pb2.FileOverview) -> None:
        version = overview.config_version
        if version.instance_id and version.instance_id != self._instance_info.nginx_id:
            failed = ApplyResult("Unable to handle request", "Instance ID not found")
            self._respond(correlation, _TYPE.UNSPECIFIED_REQUEST, failed)
            return
        replaced = self._queue.put(ApplyRequest(correlation, version.version, overview))
        if replaced is not None:
            result = ApplyResult("Config apply failed", f"superseded by {version.version}")
            self._respond(replaced.correlation, _TYPE.CONFIG_APPLY_REQUEST, result)
        self._request_queued.set()

    def _start_action(self, correlation: str, request: command_pb2.APIActionRequest) -> None:
        error = ""
        if request.instance_id != self._instance_info.nginx_id:
            error = "Instance ID not found"
        elif self._plus_api is None or request.WhichOneof("action") is None:
            error = "action not supported by this instance"
        if error:
            self._respond(correlation, _TYPE.API_ACTION_REQUEST, ApplyResult("", error))
            return
        task = asyncio.create_task(self._act(correlation, request.nginx_plus_action))
        self._action_tasks.add(task)
        task.add_done_callback(self._action_tasks.discard)

    async def _act(self, correlation: str, action: command_pb2.NGINXPlusAction) -> None:
        socket = self._plus_api
        assert socket is not None
        try:
            result = await self._applier.run_exclusively(lambda: actions.act(socket, action))
        except Exception as error:
            log.exception("action failed")
            result = ApplyResult("", f"{type(error).__name__}: {error}")
        self._respond(correlation, _TYPE.API_ACTION_REQUEST, result)

    async def apply_requests(self) -> None:
        """Apply pending requests, one at a time, newest first, until cancelled."""
        while True:
            await self._request_queued.wait()
            self._request_queued.clear()
            while (request := self._queue.start_next()) is not None:
                try:
                    result = await self._apply(request)
                finally:
                    self._queue.finish()
                self._respond(request.correlation, _TYPE.CONFIG_APPLY_REQUEST, result)
                self._state_reports.notify_changed()

    async def _apply(self, request: ApplyRequest) -> ApplyResult:
        try:
            manifest = self._overviews.read(request.overview)
            return await self._applier.apply(
                manifest, lambda missing: self._fetcher.fetch(missing, request.correlation)
            )
        except UnsafePathError as error:
            return ApplyResult("Config apply failed", str(error))
        except Exception as error:
            # Report any error to the control plane and continue with the next request.
            log.exception("apply failed", version=request.version)
            return ApplyResult("Config apply failed", f"{type(error).__name__}: {error}")

    def _respond(
        self,
        correlation: str,
        kind: command_pb2.DataPlaneResponse.RequestType,
        result: ApplyResult,
    ) -> None:
        status = _STATUS.COMMAND_STATUS_OK
        if result.error:
            status = _STATUS.COMMAND_STATUS_FAILURE
        self._responses.put_nowait(
            command_pb2.DataPlaneResponse(
                message_meta=message_metadata(correlation),
                command_response=common_pb2.CommandResponse(
                    status=status, message=result.message, error=result.error
                ),
                instance_id=self._instance_info.nginx_id,
                request_type=kind,
            )
        )
