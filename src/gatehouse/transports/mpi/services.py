"""The RPCs of the two MPI services and of their extension by Gatehouse.

They pass messages between the wire and the fleet.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from itertools import islice
from typing import Any

import grpc
import structlog

from gatehouse.dataplane.agent_limits import (
    MAX_ERROR_CHARACTERS,
    MAX_TEXT_CHARACTERS,
    MessageRefused,
)
from gatehouse.dataplane.file_set import File, FileSet
from gatehouse.transports.agents import downloads, session
from gatehouse.transports.agents.call_auth import (
    CallAuthorizer,
    CallContext,
    serve_stream,
)
from gatehouse.transports.agents.fleet import AgentFleet
from gatehouse.transports.agents.publication import Published
from gatehouse.transports.agents.stream import Apply, Stream
from gatehouse.transports.agents.token_auth import Identity
from gatehouse.transports.mpi import messages
from gatehouse.wire.gatehouse.v1 import batches_pb2
from gatehouse.wire.mpi.v1 import command_pb2, common_pb2, files_pb2

log = structlog.get_logger("gatehouse.mpi")

MAX_BATCH_FILES = 256
"""Maximum number of files in one response. Finding them takes a few milliseconds."""


class MpiServices:
    """CommandService and FileService of package ``mpi.v1``, FileService of ``gatehouse.v1``."""

    def __init__(self, fleet: AgentFleet, callers: CallAuthorizer, config_dir: str) -> None:
        self._fleet = fleet
        self._callers = callers
        self._config_dir = config_dir
        self._downloads = downloads.DownloadLimiter()

    def handlers(self) -> list[grpc.GenericRpcHandler]:
        """Return the handlers of all services."""
        command: dict[str, grpc.RpcMethodHandler[Any, Any]] = {
            "CreateConnection": self._unary(
                self._create_connection, command_pb2.CreateConnectionRequest
            ),
            "UpdateDataPlaneStatus": self._unary(
                self._update_status, command_pb2.UpdateDataPlaneStatusRequest
            ),
            "UpdateDataPlaneHealth": self._unary(
                self._update_health, command_pb2.UpdateDataPlaneHealthRequest
            ),
            "Subscribe": grpc.stream_stream_rpc_method_handler(self._subscribe),
        }
        file: dict[str, grpc.RpcMethodHandler[Any, Any]] = {
            "GetOverview": self._unary(self._get_overview, files_pb2.GetOverviewRequest),
            "UpdateOverview": self._unary(self._update_overview, files_pb2.UpdateOverviewRequest),
            "GetFile": self._unary(self._get_file, files_pb2.GetFileRequest, counted=False),
            "UpdateFile": self._unary(self._update_file, files_pb2.UpdateFileRequest),
            "GetFileStream": grpc.unary_stream_rpc_method_handler(
                self._get_file_stream,
                response_serializer=files_pb2.FileDataChunk.SerializeToString,
            ),
            "UpdateFileStream": grpc.stream_unary_rpc_method_handler(
                self._update_file_stream,
                response_serializer=files_pb2.UpdateFileResponse.SerializeToString,
            ),
        }
        batch = {
            "GetFiles": self._unary(self._get_files, batches_pb2.GetFilesRequest, counted=False)
        }
        return [
            grpc.method_handlers_generic_handler("mpi.v1.CommandService", command),
            grpc.method_handlers_generic_handler("mpi.v1.FileService", file),
            grpc.method_handlers_generic_handler("gatehouse.v1.FileService", batch),
        ]

    def _unary(
        self, function: Callable[..., Awaitable[Any]], request: Any, *, counted: bool = True
    ) -> grpc.RpcMethodHandler[bytes, bytes]:
        async def serve(message: bytes, context: CallContext) -> bytes:
            parse = request.FromString
            identity, content = await self._callers.receive(
                context, parse, message, counted=counted
            )
            response = await function(identity, content, context)
            return response if isinstance(response, bytes) else response.SerializeToString()

        return grpc.unary_unary_rpc_method_handler(serve)

    def _overview(self, published: Published, files: FileSet, config_dir: str) -> bytes:
        key = ("overview", files is published.file_set, config_dir)

        def write(files: Iterable[File]) -> bytes:
            return messages.overview(files, config_dir)

        if config_dir != self._config_dir:
            # Only the default directory is cached by chunk. Agents may choose any directory, and
            # that cache has no limit on the number of keys.
            return published.derive(key, lambda: write(files.files.values()))
        return published.derive(key, lambda: b"".join(published.by_chunk(key, files, write)))

    async def _check_owner(
        self, identity: Identity, resource: command_pb2.Resource, context: CallContext
    ) -> None:
        """Abort the call of a caller that describes itself as part of another Gateway."""
        owners = messages.claimed_owners(resource.instances)
        await self._callers.check_owner(context, identity, owners)

    async def _create_connection(
        self, identity: Identity, request: command_pb2.CreateConnectionRequest, context: CallContext
    ) -> command_pb2.CreateConnectionResponse:
        await self._check_owner(identity, request.resource, context)
        self._fleet.on_connect(identity, messages.nginx_of_instances(request.resource.instances))
        status = common_pb2.CommandResponse.CommandStatus.COMMAND_STATUS_OK
        return command_pb2.CreateConnectionResponse(
            response=common_pb2.CommandResponse(status=status, message="connected")
        )

    async def _update_status(
        self,
        identity: Identity,
        request: command_pb2.UpdateDataPlaneStatusRequest,
        context: CallContext,
    ) -> command_pb2.UpdateDataPlaneStatusResponse:
        await self._check_owner(identity, request.resource, context)
        self._fleet.receive(identity, messages.nginx_of_instances(request.resource.instances))
        return command_pb2.UpdateDataPlaneStatusResponse()

    async def _update_health(
        self,
        identity: Identity,
        request: command_pb2.UpdateDataPlaneHealthRequest,
        _context: CallContext,
    ) -> command_pb2.UpdateDataPlaneHealthResponse:
        health = messages.health_of(self._fleet.about(identity), request.instance_healths)
        if health is not None:
            self._fleet.receive(identity, health)
            log.info(
                "instance health",
                gateway=identity.gateway,
                instance=identity.instance,
                problem=health.problem[:MAX_ERROR_CHARACTERS],
            )
        return command_pb2.UpdateDataPlaneHealthResponse()

    async def _subscribe(self, answers: AsyncIterator[bytes], context: CallContext) -> None:
        identity = await self._callers.identify(context)
        await serve_stream(
            self._callers,
            self._fleet,
            identity,
            context,
            lambda stream: self._read_answers(stream, answers),
            self.apply_request,
        )

    def apply_request(self, apply: Apply) -> bytes:
        """Serialise a request to an instance."""
        if apply.upstream:
            nginx_id = apply.about.nginx_id
            return messages.servers_request(
                apply.published.file_set, apply.upstream, nginx_id, apply.correlation
            )
        config_dir = messages.config_dir_of(apply.about, self._config_dir)
        shared = self._overview(apply.published, apply.files, config_dir)
        return messages.apply_request(shared, apply)

    async def _read_answers(self, stream: Stream, answers: AsyncIterator[bytes]) -> None:
        parse = command_pb2.DataPlaneResponse.FromString
        async for answer in self._callers.parsed(stream.identity, parse, answers):
            error = messages.mpi_error(answer.command_response)
            if error is not None:
                correlation = answer.message_meta.correlation_id
                rejected = messages.is_rejection(answer.command_response)
                event = session.ApplyResponse(correlation, error, rejected)
                self._fleet.receive(stream.identity, event)

    async def _get_overview(
        self, identity: Identity, request: files_pb2.GetOverviewRequest, context: CallContext
    ) -> bytes:
        current = self._fleet.desired(identity)
        version = request.config_version.version
        if current is None or version not in ("", current.file_set.version):

            def holder() -> str:
                # An older version of the caller's Gateway may equal one of another Gateway.
                own = self._fleet.published(identity, version)
                return (
                    ""
                    if own
                    else self._fleet.owner_of(lambda publications: publications.get(version))
                )

            why = "configuration version not found"
            await self._callers.abort_not_found(context, identity, "a configuration", holder, why)
        shared = self._overview(current, current.file_set, self._config_dir)
        return messages.overview_response(shared, request.config_version)

    async def _update_overview(
        self, identity: Identity, request: files_pb2.UpdateOverviewRequest, _context: CallContext
    ) -> files_pb2.UpdateOverviewResponse:
        version = request.overview.config_version.version
        self._fleet.receive(identity, session.HasVersion(version))
        files = messages.files_of(self._fleet.about(identity), request.overview)
        if files is not None:
            self._fleet.receive(identity, files)
        return files_pb2.UpdateOverviewResponse()

    async def _file(
        self,
        identity: Identity,
        request: files_pb2.GetFileRequest,
        context: CallContext,
        size: int | None = None,
    ) -> File:
        """Return a file that may be sent now. ``size``: bytes of the message; None: `request`'s."""
        digest = request.file_meta.hash
        file = self._fleet.find(identity, digest) or self._main_file(identity, request)
        if file is None:
            await self._callers.abort_not_found(
                context,
                identity,
                "a file",
                lambda: self._fleet.owner_of(lambda publication: publication.find(digest)),
                f"{request.file_meta.name[:MAX_TEXT_CHARACTERS]}: no file with this hash",
            )
        await self._count_file(
            identity, file, context, request.ByteSize() if size is None else size
        )
        if len(file.content) > downloads.SMALL_DOWNLOAD_BYTES:
            await self._downloads.admit(identity, context)
        return file

    async def _count_file(
        self, identity: Identity, file: File, context: CallContext, more: int = 0
    ) -> None:
        """Count a fetched file and ``more`` bytes. Abort the call beyond the limit."""
        try:
            published = self._fleet.fetch_units(identity)
            self._callers.count_request(identity, len(file.content) + more, published)
        except MessageRefused as refused:
            await self._callers.abort_refused(context, identity, refused)

    def _main_file(self, identity: Identity, request: files_pb2.GetFileRequest) -> File | None:
        """Return the main file of the caller's current request if its digest is requested, else
        None."""
        apply = self._fleet.request(identity, request.message_meta.correlation_id)
        main = messages.main_file_of(apply) if apply is not None else None
        return main if main is not None and main.digest == request.file_meta.hash else None

    async def _get_file(
        self, identity: Identity, request: files_pb2.GetFileRequest, context: CallContext
    ) -> bytes:
        return messages.file_response(await self._file(identity, request, context))

    async def _get_files(
        self, identity: Identity, request: batches_pb2.GetFilesRequest, context: CallContext
    ) -> batches_pb2.GetFilesResponse:
        """Respond with the first file as :meth:`_get_file` does, and with small ones after it."""
        metas = islice(request.file_metas, MAX_BATCH_FILES)
        first = files_pb2.GetFileRequest(
            message_meta=request.message_meta, file_meta=next(metas, None)
        )
        contents = [(await self._file(identity, first, context, request.ByteSize())).content]
        size = len(contents[0])
        for meta in metas:
            file = self._fleet.find(identity, meta.hash)
            size += len(file.content) if file is not None else 0
            if file is None or size > downloads.SMALL_DOWNLOAD_BYTES:
                break
            await self._count_file(identity, file, context)
            contents.append(file.content)
        return batches_pb2.GetFilesResponse(contents=contents)

    async def _get_file_stream(
        self, message: bytes, context: CallContext
    ) -> AsyncIterator[files_pb2.FileDataChunk]:
        parse = files_pb2.GetFileRequest.FromString
        identity, request = await self._callers.receive(context, parse, message, counted=False)
        file = await self._file(identity, request, context)
        for chunk in messages.file_chunks(file, self._config_dir):
            yield chunk

    async def _update_file(
        self, _identity: Identity, request: files_pb2.UpdateFileRequest, _context: CallContext
    ) -> files_pb2.UpdateFileResponse:
        # Uploads are not requested, but an agent that sends one must not fail.
        return files_pb2.UpdateFileResponse(file_meta=request.file.file_meta)

    async def _update_file_stream(
        self, chunks: AsyncIterator[bytes], context: CallContext
    ) -> files_pb2.UpdateFileResponse:
        identity = await self._callers.identify(context)
        about = files_pb2.FileMeta()
        parse, published = files_pb2.FileDataChunk.FromString, self._fleet.fetch_units(identity)
        parsed = self._callers.parsed_to_end(context, identity, parse, chunks, published)
        async for chunk in parsed:
            if chunk.HasField("header"):
                about = chunk.header.file_meta
        return files_pb2.UpdateFileResponse(file_meta=about)
