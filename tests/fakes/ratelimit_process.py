"""A Redis of its own, counters over it, and an Envoy that asks them."""

from __future__ import annotations

import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
from envoy.extensions.common.ratelimit.v3 import ratelimit_pb2
from envoy.service.ratelimit.v3 import rls_pb2, rls_pb2_grpc

from fakes import patience
from fakes.loopback import free_port
from fakes.process import Process, environment

OK = rls_pb2.RateLimitResponse.OK
OVER = rls_pb2.RateLimitResponse.OVER_LIMIT


class Redis(Process):
    """A Redis that keeps nothing on disk."""

    def __init__(self, directory: Path, *options: str) -> None:
        self._directory = directory
        self._options = options
        self.port = free_port()
        self.url = f"redis://127.0.0.1:{self.port}/0"

    def command(self) -> list[str]:
        return [
            *(shutil.which("redis-server") or "redis-server", "--port", str(self.port)),
            *("--bind", "127.0.0.1", "--save", "", "--appendonly", "no"),
            *("--dir", str(self._directory)),
            *self._options,
        ]

    def ready(self) -> bool:
        try:
            return self.send("PING").startswith(("+PONG", "-NOAUTH"))
        except OSError:
            return False

    def send(self, *words: str) -> str:
        """Send a command to Redis. Return the first bytes of the response."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=5) as there:
            parts = "".join(f"${len(word)}\r\n{word}\r\n" for word in words)
            there.sendall(f"*{len(words)}\r\n{parts}".encode())
            return there.recv(1 << 16).decode()

    def hang(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGCONT)


class RateLimitProcess(Process):
    """`gatehouse ratelimit`."""

    def __init__(self, redis: str, log: Path, *options: str) -> None:
        self.port, self.health = free_port(), free_port()
        self.address = f"127.0.0.1:{self.port}"
        self._redis, self._log, self._options = redis, log, options

    def command(self) -> list[str]:
        return [
            *(sys.executable, "-m", "gatehouse", "ratelimit", "--redis", self._redis),
            *("--bind-address", self.address, "--health-bind-address", f"127.0.0.1:{self.health}"),
            # On a busy machine a Redis that is well is late, and then nothing is limited.
            *("--redis-timeout", f"{2 * patience.FACTOR:g}", "--shutdown-delay", "0"),
            *self._options,
        ]

    def begin(self) -> None:
        """Start, but wait for nothing."""
        with self._log.open("ab") as output:
            self.process = subprocess.Popen(
                self.command(), stdout=output, stderr=output, env=environment(**_OWN)
            )

    def start(self, log: Path | None = None) -> None:
        self.begin()
        assert self.process is not None
        deadline = time.monotonic() + patience.SECONDS
        while not self.ready():
            if self.process.poll() is not None:
                raise RuntimeError(self.log_text)
            if time.monotonic() > deadline:
                raise TimeoutError(self.log_text)
            patience.pause_thread()

    def ready(self) -> bool:
        return '"event": "counting"' in self.log_text

    @property
    def log_text(self) -> str:
        return self._log.read_text()


NAME = "counter.example"
"""In the certificate of a counter that has one."""

_NAMED = (("grpc.ssl_target_name_override", NAME),)

_OWN = {"PYTHONPATH": str(Path(__file__).parents[2] / "src")}


class Envoy:
    """Asks one counter, as the filter in an Envoy does."""

    def __init__(self, address: str, credentials: grpc.ChannelCredentials | None = None) -> None:
        self.channel = (
            grpc.aio.insecure_channel(address)
            if credentials is None
            else grpc.aio.secure_channel(address, credentials, _NAMED)
        )
        self._stub = rls_pb2_grpc.RateLimitServiceStub(self.channel)

    async def __aenter__(self) -> Envoy:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.channel.close()

    async def ask(
        self, *descriptors: ratelimit_pb2.RateLimitDescriptor, hits: int = 0, domain: str = "d"
    ) -> Any:
        request = rls_pb2.RateLimitRequest(domain=domain, descriptors=descriptors, hits_addend=hits)
        return await self._stub.ShouldRateLimit(request, timeout=30)

    async def passes(self, *descriptors: ratelimit_pb2.RateLimitDescriptor, hits: int = 0) -> bool:
        return bool((await self.ask(*descriptors, hits=hits)).overall_code == OK)


def limit(rate: Any, burst: Any, schema: str = "s", cluster: str = "c", **more: str) -> Any:
    entries = {"cluster": cluster, "schema": schema, "rate": str(rate), "burst": str(burst), **more}
    return descriptor(*entries.items())


def descriptor(*entries: tuple[str, str]) -> Any:
    result = [
        ratelimit_pb2.RateLimitDescriptor.Entry(key=key, value=value) for key, value in entries
    ]
    return ratelimit_pb2.RateLimitDescriptor(entries=result)
