"""Cost of a review at the reviewer: from the cache, and with a request to a cluster.

A cluster that answers every TokenReview at once with a ServiceAccount as Kubernetes describes it,
and every SubjectAccessReview with yes; a script in Envoy that asks over connections it keeps. Both
are one process here, the reviewer another. Tokens are as long as those of ServiceAccounts.

    python bench/reviews.py --tokens 20000 --width 32
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import contextlib
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import cast

import msgspec
import uvloop

from gatehouse.sidecars.base import control
from gatehouse.sidecars.reviewer import config

CLAIMS = {
    "aud": ["https://kubernetes.default.svc.cluster.local"],
    "exp": 4_000_000_000,
    "iss": "https://kubernetes.default.svc.cluster.local",
    "kubernetes.io": {
        "namespace": "shop",
        "node": {"name": "node-17", "uid": "6a0a0f42-9a2d-4a31-a0ef-0b7c9de9fd01"},
        "pod": {"name": "web-6d5f8c7b9-x2x4z", "uid": "e0e1f4a6-11c8-4b79-8dbd-1e93c3b3f3d2"},
        "serviceaccount": {"name": "web", "uid": "5d1c1c46-7f8f-4a93-8f0e-43b1d3b6c6ad"},
    },
}

USER = {
    "username": "system:serviceaccount:shop:web",
    "uid": "5d1c1c46-7f8f-4a93-8f0e-43b1d3b6c6ad",
    "groups": ["system:serviceaccounts", "system:serviceaccounts:shop", "system:authenticated"],
    "extra": {
        "authentication.kubernetes.io/credential-id": ["JTI=9a1d0f6c-5a31-4c37-9d52-f2f7b1a2c3d4"],
        "authentication.kubernetes.io/node-name": ["node-17"],
        "authentication.kubernetes.io/node-uid": ["6a0a0f42-9a2d-4a31-a0ef-0b7c9de9fd01"],
        "authentication.kubernetes.io/pod-name": ["web-6d5f8c7b9-x2x4z"],
        "authentication.kubernetes.io/pod-uid": ["e0e1f4a6-11c8-4b79-8dbd-1e93c3b3f3d2"],
    },
}


def _answer(kind: str, status: object) -> bytes:
    body = msgspec.json.encode({"kind": kind, "apiVersion": "v1", "spec": {}, "status": status})
    head = f"HTTP/1.1 201 Created\r\nContent-Length: {len(body)}\r\n"
    return f"{head}Content-Type: application/json\r\n\r\n".encode() + body


class Cluster(asyncio.Protocol):
    """Answers each request with what it is for."""

    received = 0
    known = _answer("TokenReview", {"authenticated": True, "user": USER})
    unknown = _answer("TokenReview", {"user": {}, "error": "invalid bearer token"})
    allowed = _answer("SubjectAccessReview", {"allowed": True})

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        self._transport, self._read = cast(asyncio.Transport, transport), b""

    def data_received(self, data: bytes) -> None:
        """Answer once a request is there."""
        self._read += data
        head, end, body = self._read.partition(b"\r\n\r\n")
        if not end:
            return
        length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
        if len(body) < length:
            return
        self._read = b""
        Cluster.received += 1
        if b"subjectaccessreviews" in head:
            self._transport.write(self.allowed)
        else:
            self._transport.write(self.unknown if b"-bad" in body else self.known)


class Script:
    """Asks over one connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    async def ask(self, request: bytes) -> int:
        """Return the status of the response."""
        self._writer.write(request)
        head = await self._reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
        if length:
            await self._reader.readexactly(length)
        return int(head[9:12])


def token(number: int, last: str = "good") -> bytes:
    """Make a token, and ask about it."""
    claims = {**CLAIMS, "jti": str(number)}
    parts = [
        base64.urlsafe_b64encode(part).decode().rstrip("=")
        for part in (b'{"alg":"RS256","kid":"k"}', msgspec.json.encode(claims), bytes(256))
    ]
    return _request("token", f"authorization: Bearer {parts[0]}.{parts[1]}.{parts[2][:-4]}{last}")


def bad(number: int) -> bytes:
    """Send a new invalid token to the reviewer."""
    return token(number, "-bad")


def impersonation(number: int) -> bytes:
    client = f"x-user: system%3Aserviceaccount%3Ashop%3Aweb{number}\r\nx-groups: dev,system%3Aall"
    return _request("impersonation", f"{client}\r\nx-as-user: bob\r\nx-as-groups: dev")


def _request(path: str, headers: str) -> bytes:
    about = "x-cluster: prod.example\r\nx-good-for: 600\r\nx-bad-for: 600"
    head = f"POST /{path} HTTP/1.1\r\nhost: reviewer\r\ncontent-length: 0"
    return f"{head}\r\n{about}\r\n{headers}\r\n\r\n".encode()


class Reviewer:
    """The process, and what it takes."""

    def __init__(self, home: Path) -> None:
        self.home = home
        (home / "gatehouse").mkdir()
        (home / config.REVIEWER_FILE).write_bytes(config.CONTENT)
        directory = home / config.REVIEWER_SOCKETS
        directory.mkdir()
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-m", "gatehouse.sidecars", "reviewer", str(directory), "5"]
        )
        self._directory = directory

    async def serve(self) -> None:
        """Have it serve, once it lives."""
        async with asyncio.timeout(30):
            while True:
                await asyncio.sleep(0.01)
                with contextlib.suppress(OSError):
                    assert await control.send_request(self._directory, [self.home]) == ""
                    return

    async def script(self) -> Script:
        """Connect one that asks."""
        path = str(self.home / config.REVIEWER_SOCKET)
        return Script(*await asyncio.open_unix_connection(path))

    @property
    def cpu(self) -> float:
        """Seconds of a core that it has used."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    @property
    def resident(self) -> float:
        """MB of memory."""
        text = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(text.partition("VmRSS:")[2].split()[0]) / 1024


async def measure(
    name: str,
    reviewer: Reviewer,
    make: Callable[[int], bytes],
    count: int,
    width: int,
    expected: int,
) -> None:
    """Ask ``count`` questions, ``width`` at a time, and print what it took."""
    scripts = [await reviewer.script() for _ in range(width)]
    requests = [make(number) for number in range(count)]
    seconds: list[float] = []

    async def some(script: Script, first: int) -> None:
        for request in requests[first::width]:
            begun = time.perf_counter()
            status = await script.ask(request)
            seconds.append(time.perf_counter() - begun)
            if status != expected:
                raise SystemExit(f"{name}: answered {status}, not {expected}")

    reviews_before, cpu, begun = Cluster.received, reviewer.cpu, time.perf_counter()
    await asyncio.gather(*(some(script, first) for first, script in enumerate(scripts)))
    took, cpu = time.perf_counter() - begun, reviewer.cpu - cpu
    ordered = sorted(seconds)
    print(
        f"{name:34} {count / took:8,.0f}/s   cpu {cpu / count * 1e6:5.0f} us   "
        f"p50 {statistics.median(ordered) * 1e3:6.2f} ms   "
        f"p99 {ordered[len(ordered) * 99 // 100] * 1e3:6.2f} ms   "
        f"reviews {Cluster.received - reviews_before:6}   RSS {reviewer.resident:5.1f} MB",
        flush=True,
    )


async def run(count: int, width: int) -> None:
    with tempfile.TemporaryDirectory(prefix="gh-") as directory:
        home = Path(directory)
        upstream = str(home / config.UPSTREAM)
        server = await asyncio.get_running_loop().create_unix_server(Cluster, upstream)
        reviewer = Reviewer(home)
        try:
            await reviewer.serve()
            print(f"at its start: RSS {reviewer.resident:.1f} MB", flush=True)
            some = max(1, count // 10)
            await measure("tokens, asked about", reviewer, token, count, width, 200)
            await measure("tokens, from memory", reviewer, token, count, width, 200)
            await measure("tokens, from memory, one at a time", reviewer, token, some, 1, 200)
            await measure("impersonation, 2 asked about", reviewer, impersonation, some, width, 200)
            await measure("impersonation, 2 from memory", reviewer, impersonation, some, width, 200)

            await measure("bad tokens, asked about", reviewer, bad, count, width, 401)
            await measure("bad tokens, from memory", reviewer, bad, count, width, 401)
        finally:
            reviewer.process.terminate()
            reviewer.process.wait()
            server.close()


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure what questions cost at the reviewer.")
    parser.add_argument("--tokens", type=int, default=20_000)
    parser.add_argument("--width", type=int, default=32, help="questions at a time")
    options = parser.parse_args()
    uvloop.run(run(options.tokens, options.width))


if __name__ == "__main__":
    main()
