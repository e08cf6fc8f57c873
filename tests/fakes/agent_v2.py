"""An NGINX Agent v2 as it behaves on the wire and on the disk, with or without a real NGINX.

``test_transports_recorded_agents.py`` compares its messages with those of the real agent.
"""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import hashlib
import io
import json
import os
import signal
import tarfile
import uuid
from base64 import b64decode, b64encode
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import grpc.aio

from fakes.durations import be_slow
from gatehouse.agent.nginx import binary as nginx_binary
from gatehouse.wire.agent_sdk import commander_pb2 as sdk

Config = dict[str, Any]
"""An NginxConfig, as its JSON was."""

SERVICE = "/f5.nginx.agent.sdk.Commander"
CHUNK_BYTES = 4096
NGINX_ID = hashlib.sha256(b"/etc/nginx/nginx.conf").hexdigest()
_CLIENT_ID = "012b3274-4d72-3bcb-a25d-6ae8ddbf8e65"
_ACTIVE = sdk.NginxHealth.NginxStatus.ACTIVE
MONITORED_SECONDS = 0.5
"""Seconds that the agent watches the log after a reload; real agents watch for ten."""


class DownloadError(Exception):
    """Downloaded content differs from its announcement."""


def channel(port: int, ca: Path, server_name: str) -> grpc.aio.Channel:
    return grpc.aio.secure_channel(
        f"127.0.0.1:{port}",
        grpc.ssl_channel_credentials(ca.read_bytes()),
        [("grpc.ssl_target_name_override", server_name), ("grpc.max_receive_message_length", -1)],
    )


def metadata(message_id: str, client: str = _CLIENT_ID) -> sdk.Metadata:
    """Return the metadata of a message. Requests to download have no client."""
    account = "98cb4eec-0b33-4aed-b39f-42e3ad083063" if client else ""
    result = sdk.Metadata(message_id=message_id, client_id=client, cloud_account_id=account)
    result.timestamp.GetCurrentTime()
    return result


def unzip(zipped: Config) -> dict[str, tuple[bytes, int]]:
    """Return the files of a ZippedFile with their modes. Raises DownloadFailed."""
    contents = b64decode(zipped["contents"])
    if hashlib.sha256(contents).hexdigest() != zipped["checksum"]:
        raise DownloadError("checksum of the archive")
    with tarfile.open(fileobj=io.BytesIO(gzip.decompress(contents))) as tar:
        result = {}
        for member in tar:
            file = tar.extractfile(member)
            assert file is not None
            result[member.name] = (file.read(), member.mode)
        return result


class AgentV2:
    """An agent that registers once and applies each command; ``apply`` returns its error."""

    def __init__(
        self,
        grpc_channel: grpc.aio.Channel,
        token: str,
        apply: Callable[[Config], Awaitable[str]],
        details: sdk.NginxDetails | None = None,
    ) -> None:
        self.details = details or sdk.NginxDetails(
            nginx_id=NGINX_ID,
            version="1.27.4",
            conf_path="/etc/nginx/nginx.conf",
            process_id="18",
            process_path="/usr/sbin/nginx",
            start_time=1795471772000,
            runtime_modules=["http_ssl_module"],
            configure_args=["", "prefix=/etc/nginx", "with-http_ssl_module"],
        )
        self.commands: list[sdk.Command] = []
        self.received: list[int] = []
        """Number of chunks of each download."""
        self.uploads: list[sdk.UploadStatus] = []
        self.configuration: Callable[[], Config] | None = None
        """Source of uploaded configurations; None disables uploads."""
        self._channel = grpc_channel
        self._token = token
        self._apply = apply
        self._registered = False
        self._applied = ""
        """Checksum of the last configuration."""

    @property
    def apply_ids(self) -> list[str]:
        """The message ids of all requests to apply."""
        download = sdk.Command.CommandType.DOWNLOAD
        return [command.meta.message_id for command in self.commands if command.type == download]

    @property
    def metadata(self) -> list[tuple[str, str]]:
        # As NGINX Agent v2 sends it: without a scheme, twice, and with an ID that it chooses.
        return [("authorization", self._token), ("bearer", self._token), ("uuid", "client")]

    @contextlib.asynccontextmanager
    async def connected(self, *, registers: bool = True) -> AsyncIterator[None]:
        """Have one CommandChannel. Its end ends the context's task, if it comes from the server."""
        call = self._channel.stream_stream(
            f"{SERVICE}/CommandChannel",
            request_serializer=sdk.Command.SerializeToString,
            response_deserializer=sdk.Command.FromString,
        )(metadata=self.metadata, wait_for_ready=True)
        if registers and not self._registered:
            self._registered = True
            # The server may have ended it already.
            with contextlib.suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):
                await call.write(self._registration())
        reading = asyncio.create_task(self._read(call))
        self.call = call
        try:
            yield
        finally:
            reading.cancel()
            call.cancel()
            await asyncio.gather(reading, return_exceptions=True)

    async def ended(self) -> grpc.StatusCode:
        """Wait until the server ends the channel. Return the status code.

        If a message is being sent meanwhile, as in :meth:`connected` with ``registers``, the client
        library may make the code INTERNAL.
        """
        return await self.call.code()

    def _registration(self) -> sdk.Command:
        meta = sdk.AgentMeta(display_name="vm", system_uid=_CLIENT_ID)
        meta.updated.GetCurrentTime()
        return sdk.Command(
            meta=metadata(str(uuid.uuid4())),
            agent_connect_request=sdk.AgentConnectRequest(meta=meta, details=[self.details]),
        )

    async def send_report(self, *, details: bool = False, **outcome: Any) -> None:
        """Send the regular report: always health, at times what NGINX is, how an apply went."""
        status = sdk.DataplaneStatus(
            healths=[sdk.NginxHealth(nginx_id=self.details.nginx_id, nginx_status=_ACTIVE)],
            details=[self.details] if details else [],
        )
        if outcome:
            activity = sdk.NginxConfigStatus(nginx_id=self.details.nginx_id, **outcome)
            status.agent_activity_status.add(nginx_config_status=activity)
        await self.call.write(
            sdk.Command(meta=metadata(str(uuid.uuid4())), dataplane_status=status)
        )

    async def answer(self, message_id: str, error: str = "", message: str = "") -> None:
        states = sdk.CommandStatusResponse.CommandStatus
        status = sdk.CommandStatusResponse(
            status=states.CMD_ERROR if error else states.CMD_OK, error=error, message=message
        )
        data = sdk.ConfigDescriptor(nginx_id=self.details.nginx_id, checksum=self._applied)
        action = sdk.NginxConfigAction.APPLY
        response = sdk.NginxConfigResponse(status=status, action=action, config_data=data)
        meta = metadata(message_id)
        await self.call.write(sdk.Command(meta=meta, nginx_config_response=response))

    async def _read(self, call: Any) -> None:
        with contextlib.suppress(grpc.aio.AioRpcError):
            async for command in call:
                self.commands.append(command)
                if command.type == sdk.Command.CommandType.DOWNLOAD:
                    await self._handle_command(command)
                for desired in command.agent_connect_response.agent_config.configs.configs:
                    assert desired.nginx_id == self.details.nginx_id
                    await self.upload(str(uuid.uuid4()))

    async def _handle_command(self, command: sdk.Command) -> None:
        message_id = command.meta.message_id
        try:
            config = await self.download(message_id)
        except (DownloadError, grpc.aio.AioRpcError) as error:
            await self.answer(message_id, f"Config apply failed (download): {error}")
            return
        wrong = await self._apply(config)
        if wrong == "silent":
            return
        if not wrong:
            await self.upload(message_id)
        self._applied = config["config_data"]["checksum"]
        await self.answer(message_id, wrong, wrong or "config applied successfully")

    async def chunks(self, message_id: str) -> AsyncIterator[sdk.DataChunk]:
        call = self._channel.unary_stream(
            f"{SERVICE}/Download",
            request_serializer=sdk.DownloadRequest.SerializeToString,
            response_deserializer=sdk.DataChunk.FromString,
        )
        request = sdk.DownloadRequest(meta=metadata(message_id, client=""))
        async for chunk in call(request, metadata=self.metadata):
            yield chunk

    async def download(self, message_id: str) -> Config:
        headers, data = [], bytearray()
        self.received.append(0)
        async for chunk in self.chunks(message_id):
            self.received[-1] += 1
            if chunk.HasField("header"):
                headers.append(chunk.header)
            data += chunk.data.data
        (header,) = headers
        if header.checksum != hashlib.sha256(data).digest():
            raise DownloadError("checksum")
        document: Config = json.loads(data)
        return document

    async def upload(self, message_id: str) -> None:
        if self.configuration is None:
            return
        payload = json.dumps(self.configuration()).encode()

        async def pieces() -> AsyncIterator[sdk.DataChunk]:
            meta = metadata(message_id)
            checksum = hashlib.sha256(payload).digest()
            chunks = -(-len(payload) // CHUNK_BYTES)
            header = sdk.ChunkedResourceHeader(
                meta=meta, chunks=chunks, checksum=checksum, chunk_size=CHUNK_BYTES
            )
            yield sdk.DataChunk(header=header)
            for offset in range(0, len(payload), CHUNK_BYTES):
                data = payload[offset : offset + CHUNK_BYTES]
                yield sdk.DataChunk(data=sdk.ChunkedResourceChunk(meta=meta, data=data))

        call = self._channel.stream_unary(
            f"{SERVICE}/Upload",
            request_serializer=sdk.DataChunk.SerializeToString,
            response_deserializer=sdk.UploadStatus.FromString,
        )
        self.uploads.append(await call(pieces(), metadata=self.metadata))


class OldNginx:
    """A real NGINX whose whole configuration is written in place, as agent v2 writes it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.binary = nginx_binary.probe_nginx(nginx_binary.find_nginx_binary(None))
        self.conf = directory / "nginx.conf"
        self.conf.write_text("events {}\nhttp { include mime.types; }\n")
        (directory / "mime.types").write_text("types {}\n")
        self._listed = {self.conf, directory / "mime.types"}
        self._master: asyncio.subprocess.Process | None = None

    @property
    def details(self) -> sdk.NginxDetails:
        arguments = self.binary.arguments.removeprefix("--").split(" --")
        return sdk.NginxDetails(
            nginx_id=str(uuid.uuid5(uuid.NAMESPACE_DNS, str(self.conf))),
            version=self.binary.version,
            conf_path=str(self.conf),
            process_path=str(self.binary.path),
            runtime_modules=[
                argument.removeprefix("with-")
                for argument in arguments
                if argument.startswith("with-") and argument.endswith("module")
            ],
            configure_args=arguments,
        )

    def _command(self, *more: str) -> list[str]:
        where = ("-p", f"{self.directory}/", "-c", str(self.conf), "-e", "error.log")
        return [str(self.binary.path), *where, *more]

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        self._master = await asyncio.create_subprocess_exec(*self._command("-g", "daemon off;"))
        try:
            yield
        finally:
            self._master.send_signal(signal.SIGTERM)
            await self._master.wait()

    async def apply(self, config: Config) -> str:
        """Write, test and reload the configuration. Return the error, empty for success."""
        if config["config_data"]["nginx_id"] != self.details.nginx_id:
            return "Config apply failed (preflight): no Nginx instance found"
        files = {self.directory / name: data for name, data in unzip(config["zconfig"]).items()}
        if self.conf not in files:
            return f"Config apply failed (write): should not delete {self.conf}"
        backup = {path: path.read_bytes() for path in self._listed if path.exists()}
        before = set(self._listed)
        for path, (content, mode) in files.items():
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o750)
            path.write_bytes(content)
            path.chmod(mode)
        paths = {
            Path(directory["name"]) / file["name"]
            for directory in config["directory_map"]["directories"]
            for file in directory["files"]
        }
        for path in before - paths:
            path.unlink(missing_ok=True)
        self._listed = set(files)
        error = await self._tested()
        if error:
            self._roll_back(before, backup)
            return f"Config apply failed (write): {error}"
        error = await self._reloaded()
        if error:
            self._roll_back(before, backup)
            await self._reloaded()
            what = "Errors found during NGINX reload after applying a new configuration"
            return f"Config apply failed. {what}: {error}"
        return ""

    def _roll_back(self, before: set[Path], backup: dict[Path, bytes]) -> None:
        for path in self._listed - before:
            path.unlink(missing_ok=True)
        for path, content in backup.items():
            path.write_bytes(content)
        self._listed = before

    async def _reloaded(self) -> str:
        """Signal the master, and watch its log for a while."""
        assert self._master is not None
        log = self.directory / "error.log"
        start = log.stat().st_size
        os.kill(self._master.pid, signal.SIGHUP)
        await be_slow(MONITORED_SECONDS)
        lines = log.read_bytes()[start:].decode().splitlines()
        return next((line for line in lines if "[emerg]" in line), "")

    async def _tested(self) -> str:
        done = await asyncio.create_subprocess_exec(
            *self._command("-t"), stderr=asyncio.subprocess.PIPE
        )
        _, errors = await done.communicate()
        return "" if done.returncode == 0 else errors.decode().strip()

    def configuration(self) -> Config:
        """Return the configuration for an upload: all files that NGINX reads, from disk."""
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w:gz") as tar:
            for path in sorted(self._listed, key=lambda path: path != self.conf):
                tar.add(path)
        contents = packed.getvalue()
        return {
            "action": 4,
            "config_data": {"system_id": "system", "nginx_id": self.details.nginx_id},
            "zconfig": {
                "contents": b64encode(contents).decode(),
                "checksum": hashlib.sha256(contents).hexdigest(),
                "root_directory": str(self.directory),
            },
        }
