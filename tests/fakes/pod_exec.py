"""A cluster whose Pods run commands: ``pods/exec`` over WebSockets beside the API server.

`tests/e2e/test_e2e_pod_exec.py` compares it with the handlers of k8s.io/apiserver.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import yaml
from aiohttp import web
from multidict import CIMultiDict

from fakes import inprocess
from fakes.process import environment

_CHUNK_BYTES = 32 << 10
"""Size of the messages of k8s.io/apiserver."""

_EXEC = "/api/v1/namespaces/{namespace}/pods/{name}/exec"


class ClusterWithPods:
    """An API server that authorizes and runs commands of Pods as processes of this machine."""

    def __init__(self, server: inprocess.Server) -> None:
        self.url = ""
        self.commands: list[tuple[str, list[str]]] = []
        """Pods with the commands that they ran."""
        self.variables: dict[str, Mapping[str, str]] = {}
        """Environment variables of containers by the name of the Pod. Others do not exist."""
        self._server = server

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        application = web.Application()
        application.router.add_get(_EXEC, self._exec)
        application.router.add_route("*", "/{path:.*}", self._forward)
        runner = web.AppRunner(application)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        try:
            yield
        finally:
            await runner.cleanup()

    def kubeconfig(self, path: Path, token: str = "") -> Path:
        """Write the kubeconfig of a user; without token the administrator's."""
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "c",
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
            "clusters": [{"name": "c", "cluster": {"server": self.url}}],
            "users": [{"name": "u", "user": {"token": token} if token else {}}],
        }
        path.write_text(yaml.safe_dump(config))
        return path

    async def _forward(self, request: web.Request) -> web.Response:
        headers = _end_to_end(request)
        async with (
            self._server.raw(**headers) as session,
            session.request(request.method, request.rel_url, data=await request.read()) as answer,
        ):
            content_type = answer.headers.get("Content-Type", "application/json")
            body = await answer.read()
        return web.Response(status=answer.status, body=body, headers={"Content-Type": content_type})

    async def _exec(self, request: web.Request) -> web.StreamResponse:
        namespace, name = request.match_info["namespace"], request.match_info["name"]
        if not await self._permits(request, namespace, name):
            return _status(403, "Forbidden", f'pods "{name}" is forbidden: cannot get pods/exec')
        if name not in self.variables:
            return _status(404, "NotFound", f'pods "{name}" not found')
        socket = web.WebSocketResponse(protocols=("v5.channel.k8s.io", "v4.channel.k8s.io"))
        if not socket.can_prepare(request):
            return _status(400, "BadRequest", "Upgrade request required")
        await socket.prepare(request)
        command = request.query.getall("command")
        self.commands.append((name, command))
        result = await _run(command, self.variables[name])
        for channel, content in enumerate(result[:2], 1):
            for start in range(0, len(content), _CHUNK_BYTES):
                part = content[start : start + _CHUNK_BYTES]
                await socket.send_bytes(bytes([channel]) + part)
        await socket.send_bytes(b"\x03" + json.dumps(result[2]).encode())
        await socket.close()
        return socket

    async def _permits(self, request: web.Request, namespace: str, name: str) -> bool:
        """Return whether the user may get pods/exec, by the API server's RBAC."""
        attributes = {
            "verb": "get", "resource": "pods", "subresource": "exec",
            "namespace": namespace, "name": name,
        }  # fmt: skip
        review = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": attributes},
        }
        path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
        headers = _end_to_end(request)
        headers.pop("Content-Type", "")
        async with (
            self._server.raw(**headers) as session,
            session.post(path, json=review) as answer,
        ):
            return bool((await answer.json())["status"]["allowed"])


def _end_to_end(request: web.Request) -> dict[str, str]:
    names = ("Authorization", "Accept", "Content-Type", "User-Agent")
    headers = CIMultiDict(request.headers)
    return {name: headers[name] for name in names if name in headers}


def _status(code: int, reason: str, message: str) -> web.Response:
    body = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code}
    return web.json_response({**body, "reason": reason, "message": message}, status=code)


async def _run(
    command: list[str], variables: Mapping[str, str]
) -> tuple[bytes, bytes, dict[str, Any]]:
    """Run a command. Return its output, errors and the Status at the end."""
    status: dict[str, Any] = {"metadata": {}, "status": "Success"}
    # The programs of an image are on its PATH.
    programs = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    try:
        process = await asyncio.create_subprocess_exec(
            *command,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=environment(**{"PATH": programs, **variables}),
        )
    except OSError as error:
        status |= {"status": "Failure", "reason": "InternalError", "code": 500}
        return b"", b"", {**status, "message": f"error executing command in container: {error}"}
    out, errors = await process.communicate()
    if process.returncode:
        cause = {"reason": "ExitCode", "message": str(process.returncode)}
        status |= {"status": "Failure", "reason": "NonZeroExitCode", "details": {"causes": [cause]}}
        status["message"] = f"command terminated with exit code {process.returncode}"
    return out, errors, status
