"""Sources of bearer tokens, with caching."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Protocol

import msgspec

FILE_LIFETIME_SECONDS = 60.0
"""Time in seconds for which a token read from a file is cached. A kubelet replaces the file at 80 %
of the token's lifetime (at least 10 minutes), so that the cached token is never expired."""

EXEC_TIMEOUT_SECONDS = 60.0
"""Timeout of a credential plug-in in seconds; plug-ins may open a browser."""


class CredentialError(Exception):
    """Raised if no token is available; the message names the file or command and the error."""


class TokenSource(Protocol):
    """Provides the bearer token to send; empty to send none."""

    async def token(self) -> str:
        """Return the current token. May read a file or run a command. Raises CredentialError."""

    def invalidate(self) -> None:
        """Drop the cached token, which the server rejected."""


class StaticToken:
    """A constant token; empty for client certificates or anonymous access."""

    def __init__(self, value: str = "") -> None:
        self._value = value

    async def token(self) -> str:
        """Return the token."""
        return self._value

    def invalidate(self) -> None:
        """Do nothing: there is no other token."""


class TokenFile:
    """A token in a file that another process renews, such as the kubelet."""

    def __init__(self, path: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self._path = path
        self._clock = clock
        self._value = ""
        self._read_at = float("-inf")

    async def token(self) -> str:
        """Return the file's content, at most one minute old."""
        if self._clock() - self._read_at >= FILE_LIFETIME_SECONDS:
            try:
                self._value = self._path.read_text(encoding="ascii").strip()
            except (OSError, UnicodeDecodeError) as error:
                raise CredentialError(f"token file {self._path}: {error}") from error
            self._read_at = self._clock()
        return self._value

    def invalidate(self) -> None:
        """Read the file again next time."""
        self._read_at = float("-inf")


class ExecPlugin(msgspec.Struct, frozen=True):
    """The ``exec`` section of a kubeconfig user (client.authentication.k8s.io)."""

    command: str
    args: tuple[str, ...] = ()
    env: tuple[tuple[str, str], ...] = ()
    api_version: str = "client.authentication.k8s.io/v1"


class _CredentialStatus(msgspec.Struct):
    token: str = ""
    expirationTimestamp: datetime | None = None
    clientCertificateData: str = ""


class _Credential(msgspec.Struct):
    status: _CredentialStatus = msgspec.field(default_factory=_CredentialStatus)


class ExecToken:
    """A token printed by a credential plug-in, cached until shortly before it expires."""

    MARGIN = 30.0
    """Seconds before expiry at which a new token is obtained."""

    def __init__(self, plugin: ExecPlugin, clock: Callable[[], float] = time.time) -> None:
        self._plugin = plugin
        self._clock = clock
        self._value = ""
        self._cached_until = float("-inf")
        self._running = asyncio.Lock()

    async def token(self) -> str:
        """Return the cached token, or run the plug-in for a new one."""
        async with self._running:
            if self._clock() >= self._cached_until:
                status = parse_exec_credential(self._plugin.command, await self._run())
                self._value = status.token
                expiry = status.expirationTimestamp
                self._cached_until = expiry.timestamp() - self.MARGIN if expiry else float("inf")
            return self._value

    def invalidate(self) -> None:
        """Run the plug-in again for the next token."""
        self._cached_until = float("-inf")

    async def _run(self) -> bytes:
        plugin = self._plugin
        info = {"apiVersion": plugin.api_version, "kind": "ExecCredential", "spec": {}}
        info["spec"] = {"interactive": False}
        environ: Mapping[str, str] = {
            **os.environ,
            **dict(plugin.env),
            "KUBERNETES_EXEC_INFO": msgspec.json.encode(info).decode(),
        }
        try:
            process = await asyncio.create_subprocess_exec(
                plugin.command,
                *plugin.args,
                env=environ,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
            )
        except OSError as error:
            raise CredentialError(f"credential plugin {plugin.command}: {error}") from error
        try:
            async with asyncio.timeout(EXEC_TIMEOUT_SECONDS):
                output, _ = await process.communicate()
        except BaseException as error:
            if process.returncode is None:
                process.kill()
                await process.wait()
            if isinstance(error, TimeoutError):
                raise CredentialError(
                    f"credential plugin {plugin.command} timed out after "
                    f"{EXEC_TIMEOUT_SECONDS:.0f} s"
                ) from error
            raise
        if process.returncode:
            raise CredentialError(
                f"credential plugin {plugin.command} exited with status {process.returncode}"
            )
        return output


def parse_exec_credential(command: str, output: bytes) -> _CredentialStatus:
    """Parse the ExecCredential of a plug-in. Raises CredentialError if it has no token."""
    try:
        status = msgspec.json.decode(output, type=_Credential).status
    except msgspec.MsgspecError as error:
        raise CredentialError(f"credential plugin {command}: invalid output: {error}") from error
    if not status.token:
        what = "only a client certificate" if status.clientCertificateData else "no token"
        raise CredentialError(f"credential plugin {command} returned {what}; a token is required")
    return status
