"""The connection's life: announce, say what is served, listen, answer, reconnect for ever."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterable
from pathlib import Path

import grpc
import grpc.aio
import msgspec
import structlog

from gatehouse.agent.channel import Token
from gatehouse.agent.nginx.apply import EMPTY, Applier
from gatehouse.agent.nginx.apply_steps import ApplyResult
from gatehouse.agent.nginx.coalescing_queue import CoalescingQueue
from gatehouse.agent.nginx.file_fetcher import Fetcher
from gatehouse.agent.nginx.file_overview import Overviews
from gatehouse.agent.nginx.instance_info import InstanceInfo, meta
from gatehouse.agent.nginx.mpi_client import MPIClient, Requests
from gatehouse.agent.nginx.plus import actions
from gatehouse.agent.nginx.revision_store import RevisionStore
from gatehouse.agent.options import Options
from gatehouse.agent.reconnect import Backoff, ReconnectLoop
from gatehouse.agent.secure_files import UnsafePathError
from gatehouse.wire.mpi.v1 import command_pb2, common_pb2, files_pb2

log = structlog.get_logger("gatehouse.agent")

BACKOFF = Backoff(first=0.5, max_seconds=20.0)

_STATUS = common_pb2.CommandResponse.CommandStatus
_TYPE = command_pb2.DataPlaneResponse.RequestType


Answers = asyncio.Queue[command_pb2.DataPlaneResponse | None]
"""What is to be said to the control plane; None: nothing more on this connection."""


class ApplyRequest(msgspec.Struct, frozen=True):
    """A request to apply, and what its answer must carry."""

    correlation: str
    version: str
    overview: files_pb2.FileOverview


async def _outgoing(answers: Answers) -> AsyncIterator[command_pb2.DataPlaneResponse]:
    while (answer := await answers.get()) is not None:
        yield answer


class MPISession:
    """Keeps connected to one control plane and does what it asks."""

    def __init__(
        self,
        options: Options,
        describer: InstanceInfo,
        applier: Applier,
        generations: RevisionStore,
        plus_api: Path | None = None,
    ) -> None:
        """``plus_api``: the socket of NGINX Plus' API; None: it is another NGINX."""
        self._reconnecting = ReconnectLoop(options.server_host, BACKOFF)
        self._plus_api = plus_api
        self._acting: set[asyncio.Task[None]] = set()
        self._options = options
        self._describer = describer
        self._applier = applier
        proven = options.token_path is not None or options.token
        self._token = Token(options.token_path, options.token) if proven else None
        self._connection: MPIClient | None = None
        self._fetcher = Fetcher(lambda: self._connection, generations)
        self._overviews = Overviews(options.allowed_directories)
        self._mailbox: CoalescingQueue[ApplyRequest] = CoalescingQueue()
        self._arrived = asyncio.Event()
        self._changed = asyncio.Event()
        self._answers: Answers = asyncio.Queue()

    def notify_changed(self) -> None:
        """NGINX appeared, died or has new workers: the control plane is to hear of it."""
        self._changed.set()

    @property
    def connected(self) -> bool:
        """Whether the control plane has taken up the connection."""
        return self._reconnecting.connected

    async def run(self) -> None:
        """Stay connected until cancelled. Nothing the control plane does ends this."""
        await self._reconnecting.run(self._connect_once)

    async def _connect_once(self) -> None:
        connection = MPIClient(self._options, self._token, self._describer.resource_id)
        self._connection = connection
        beside: list[asyncio.Task[None]] = []
        try:
            await connection.create_connection(
                command_pb2.CreateConnectionRequest(
                    message_meta=meta(), resource=self._describer.resource()
                )
            )
            await self._report_overview(connection)
            call = connection.subscribe(_outgoing(self._fresh_answers()))
            beside = [
                asyncio.create_task(self._report_changes(connection)),
                asyncio.create_task(self._note_connected(call)),
            ]
            async for request in call:
                self._receive(request)
        finally:
            self._connection = None
            for task in beside:
                task.cancel()
            await asyncio.gather(*beside, return_exceptions=True)
            await connection.close()

    async def _note_connected(self, call: Requests) -> None:
        # Not the first request, which an agent that has everything already may never get.
        await call.initial_metadata()
        if not call.done():
            self._reconnecting.established()

    def _fresh_answers(self) -> Answers:
        """Give a queue of a new connection's own, with what was not sent yet.

        gRPC still waits for answers to send on a connection that was lost, and would take the next.
        """
        answers: Answers = asyncio.Queue()
        while not self._answers.empty():
            answers.put_nowait(self._answers.get_nowait())
        self._answers.put_nowait(None)
        self._answers = answers
        return answers

    async def _report_overview(self, connection: MPIClient) -> None:
        # Nothing while an apply runs: what is served then is about to change.
        served = EMPTY if self._mailbox.in_progress else self._applier.served()
        await connection.update_overview(
            files_pb2.UpdateOverviewRequest(
                message_meta=meta(), overview=self._describer.overview(served)
            )
        )

    async def _report_changes(self, connection: MPIClient) -> None:
        reported: command_pb2.InstanceHealth | None = None
        while True:
            health = self._describer.health()
            with contextlib.suppress(grpc.aio.AioRpcError, OSError):
                if health != reported:
                    await self._send_health(connection, [health])
                    reported = health
                if self._changed.is_set():
                    self._changed.clear()
                    await connection.update_status(
                        command_pb2.UpdateDataPlaneStatusRequest(
                            message_meta=meta(), resource=self._describer.resource()
                        )
                    )
            with contextlib.suppress(TimeoutError):
                # A change wakes this at once; the wait bounds how long a lost report stays lost.
                await asyncio.wait_for(self._changed.wait(), 5.0)

    async def _send_health(
        self, connection: MPIClient, healths: Iterable[command_pb2.InstanceHealth]
    ) -> None:
        await connection.update_health(
            command_pb2.UpdateDataPlaneHealthRequest(message_meta=meta(), instance_healths=healths)
        )

    def _receive(self, request: command_pb2.ManagementPlaneRequest) -> None:
        correlation = request.message_meta.correlation_id
        match request.WhichOneof("request"):
            case "config_apply_request":
                self._enqueue(correlation, request.config_apply_request.overview)
            case "action_request":
                self._begin_action(correlation, request.action_request)
            case "health_request":
                self._changed.set()
                text = "Successfully sent health status update"
                self._answer(correlation, _TYPE.HEALTH_REQUEST, ApplyResult(text))
            case "status_request":
                self._changed.set()
                text = "Successfully sent status update"
                self._answer(correlation, _TYPE.STATUS_REQUEST, ApplyResult(text))
            case other:
                error = f"{other} is not supported by this agent"
                failed = ApplyResult("Unable to handle request", error)
                self._answer(correlation, _TYPE.UNSPECIFIED_REQUEST, failed)

    def _enqueue(self, correlation: str, overview: files_pb2.FileOverview) -> None:
        version = overview.config_version
        if version.instance_id and version.instance_id != self._describer.nginx_id:
            failed = ApplyResult("Unable to handle request", "Instance ID not found")
            self._answer(correlation, _TYPE.UNSPECIFIED_REQUEST, failed)
            return
        replaced = self._mailbox.put(ApplyRequest(correlation, version.version, overview))
        if replaced is not None:
            outcome = ApplyResult("Config apply failed", f"superseded by {version.version}")
            self._answer(replaced.correlation, _TYPE.CONFIG_APPLY_REQUEST, outcome)
        self._arrived.set()

    def _begin_action(self, correlation: str, asked: command_pb2.APIActionRequest) -> None:
        refused = ""
        if asked.instance_id != self._describer.nginx_id:
            refused = "Instance ID not found"
        elif self._plus_api is None or asked.WhichOneof("action") is None:
            refused = "the instance is not NGINX Plus, or nothing that it can do is asked"
        if refused:
            self._answer(correlation, _TYPE.API_ACTION_REQUEST, ApplyResult("", refused))
            return
        task = asyncio.create_task(self._act(correlation, asked.nginx_plus_action))
        self._acting.add(task)
        task.add_done_callback(self._acting.discard)

    async def _act(self, correlation: str, action: command_pb2.NGINXPlusAction) -> None:
        socket = self._plus_api
        assert socket is not None
        try:
            outcome = await self._applier.run_exclusively(lambda: actions.act(socket, action))
        except Exception as error:
            log.exception("action broke")
            outcome = ApplyResult("", f"{type(error).__name__}: {error}")
        self._answer(correlation, _TYPE.API_ACTION_REQUEST, outcome)

    async def apply_requests(self) -> None:
        """Apply what was asked for, one at a time, newest first, until cancelled."""
        while True:
            await self._arrived.wait()
            self._arrived.clear()
            while (request := self._mailbox.start_next()) is not None:
                try:
                    outcome = await self._apply(request)
                finally:
                    self._mailbox.finish()
                self._answer(request.correlation, _TYPE.CONFIG_APPLY_REQUEST, outcome)
                self._changed.set()

    async def _apply(self, request: ApplyRequest) -> ApplyResult:
        try:
            manifest = self._overviews.read(request.overview)
            return await self._applier.apply(
                manifest, lambda missing: self._fetcher.fetch(missing, request.correlation)
            )
        except UnsafePathError as error:
            return ApplyResult("Config apply failed", str(error))
        except Exception as error:
            # Whatever it is, the control plane must hear of it, and the next request be taken.
            log.exception("apply broke", version=request.version)
            return ApplyResult("Config apply failed", f"{type(error).__name__}: {error}")

    def _answer(
        self,
        correlation: str,
        kind: command_pb2.DataPlaneResponse.RequestType,
        outcome: ApplyResult,
    ) -> None:
        status = _STATUS.COMMAND_STATUS_OK
        if outcome.error:
            status = _STATUS.COMMAND_STATUS_FAILURE
        self._answers.put_nowait(
            command_pb2.DataPlaneResponse(
                message_meta=meta(correlation),
                command_response=common_pb2.CommandResponse(
                    status=status, message=outcome.message, error=outcome.error
                ),
                instance_id=self._describer.nginx_id,
                request_type=kind,
            )
        )
