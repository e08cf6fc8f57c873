"""A reviewer's process, and around it what an Envoy is to it: who asks, and who passes on."""

from __future__ import annotations

import contextlib
import re
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import aiohttp
import msgspec
from aiohttp import web

from fakes import patience
from gatehouse.sidecars.base import control
from gatehouse.sidecars.reviewer import config

CLUSTER = "prod.example"


class ReviewerResponse(msgspec.Struct):
    """Response in the format that the script in Envoy reads."""

    status: int
    headers: dict[str, str]
    text: str

    @property
    def keep(self) -> float:
        return float(self.headers["x-keep"])


class ReviewRequest(msgspec.Struct):
    """A review as a cluster was asked for it."""

    cluster: str
    path: str
    headers: dict[str, str]
    body: dict[str, Any]

    @property
    def spec(self) -> dict[str, Any]:
        spec: dict[str, Any] = self.body["spec"]
        return spec


Fault = Callable[[web.BaseRequest], Awaitable[web.StreamResponse | None]]
"""Handler that may replace the response; None keeps the response of the cluster."""


class Upstream:
    """The socket on which Envoy passes reviews on, to a cluster, as the gateway itself."""

    def __init__(self, socket: Path, cluster: aiohttp.ClientSession | None) -> None:
        self.asked: list[ReviewRequest] = []
        self.most = 0
        """Most reviews that were asked at a time."""
        self.fault: Fault | None = None
        self._socket, self._cluster = socket, cluster
        self._now = 0
        self._runner: web.ServerRunner | None = None

    async def start(self) -> None:
        self._runner = web.ServerRunner(web.Server(self._handle), shutdown_timeout=0.1)
        await self._runner.setup()
        await web.UnixSite(self._runner, str(self._socket)).start()

    async def stop(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None
        self._socket.unlink(missing_ok=True)

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        self._now += 1
        self.most = max(self.most, self._now)
        try:
            content = await request.read()
            decoded = msgspec.json.decode(content)
            headers = dict(request.headers)
            self.asked.append(ReviewRequest(headers["Host"], request.path, headers, decoded))
            if self.fault is not None and (result := await self.fault(request)) is not None:
                return result
            assert self._cluster is not None
            forwarded = {"Content-Type": headers["Content-Type"], "Accept": headers["Accept"]}
            async with self._cluster.post(
                request.path, data=content, headers=forwarded
            ) as response:
                return web.Response(
                    status=response.status,
                    body=await response.read(),
                    content_type=response.content_type,
                )
        finally:
            self._now -= 1


class ReviewerProcess:
    """A reviewer as the agent runs it, and a script that asks it."""

    def __init__(self, home: Path, http: aiohttp.ClientSession, linger: float) -> None:
        self.home = home
        self.http = http
        self._linger = linger
        self.processes: list[subprocess.Popen[bytes]] = []
        self.directory = home / config.REVIEWER_SOCKETS
        self.directory.mkdir()
        self.socket = home / config.REVIEWER_SOCKET
        self.start()

    @property
    def process(self) -> subprocess.Popen[bytes]:
        return self.processes[-1]

    def start(self) -> None:
        with (self.home / "reviewer.log").open("ab") as output:
            self.processes.append(
                subprocess.Popen(
                    [sys.executable, "-P", "-m", "gatehouse.sidecars", "reviewer",
                     str(self.directory), str(self._linger)],
                    stderr=output,
                )
            )  # fmt: skip

    @property
    def log(self) -> str:
        return (self.home / "reviewer.log").read_text()

    async def serve(self, *configurations: Path) -> str:
        async with patience.limit():
            while True:
                with contextlib.suppress(OSError):
                    if control.pid(self.directory) == self.process.pid:
                        return await control.send_request(self.directory, configurations)
                await patience.pause()

    async def serving(self) -> None:
        assert await self.serve(self.home) == ""

    async def token(
        self, token: str, good: float = 600, bad: float = 10, **more: str
    ) -> ReviewerResponse:
        headers = {"authorization": f"Bearer {token}", **more}
        return await self.ask("/token", good, bad, **headers)

    async def ask(
        self, path: str, good: float = 600, bad: float = 10, /, **fields: str
    ) -> ReviewerResponse:
        """Ask; what is empty is not said."""
        headers = {
            "x-cluster": CLUSTER,
            "x-good-for": str(good),
            "x-bad-for": str(bad),
            **{name.replace("_", "-"): value for name, value in fields.items()},
        }
        request_headers = {name: value for name, value in headers.items() if value}
        async with self.http.post(f"http://reviewer{path}", headers=request_headers) as response:
            return ReviewerResponse(response.status, dict(response.headers), await response.text())

    async def impersonation(
        self,
        client: dict[str, Any],
        impersonated: dict[str, Any],
        good: float = 300,
        bad: float = 30,
    ) -> ReviewerResponse:
        fields = {**user_headers("x-", client), **user_headers("x-as-", impersonated)}
        return await self.ask("/impersonation", good, bad, **fields)

    async def metrics(self) -> dict[str, float]:
        async with self.http.get("http://reviewer/metrics") as response:
            text = await response.text()
        return {name: float(value) for name, value in re.findall(r"^([a-z]\S*) (\S+)$", text, re.M)}


def user_headers(prefix: str, user: dict[str, Any]) -> dict[str, str]:
    """Write a ``UserInfo`` as the script does."""
    pairs = [(key, value) for key, values in user.get("extra", {}).items() for value in values]
    return {
        f"{prefix}user": quote(user.get("username", ""), safe=""),
        f"{prefix}uid": quote(user.get("uid", ""), safe=""),
        f"{prefix}groups": ",".join(quote(group, safe="") for group in user.get("groups", ())),
        f"{prefix}extra": ",".join(
            f"{quote(key, safe='')}={quote(value, safe='')}" for key, value in pairs
        ),
    }


@contextlib.asynccontextmanager
async def running(home: Path, linger: float = 60.0) -> AsyncIterator[ReviewerProcess]:
    path = str(home / config.REVIEWER_SOCKET)
    async with aiohttp.ClientSession(
        connector=aiohttp.UnixConnector(path, limit=0), cookie_jar=aiohttp.DummyCookieJar()
    ) as http:
        reviewer = ReviewerProcess(home, http, linger)
        try:
            yield reviewer
        finally:
            for process in reviewer.processes:
                process.kill()
                process.wait()


def review(status: dict[str, Any], kind: str = "TokenReview", code: int = 201) -> web.Response:
    """Return the review that a cluster returns."""
    body = {"apiVersion": "v1", "kind": kind, "spec": {}, "status": status}
    return web.Response(
        status=code, body=msgspec.json.encode(body), content_type="application/json"
    )
