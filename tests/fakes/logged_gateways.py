"""A gateway of the IR served by a real NGINX or Envoy whose access log can be read."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import tempfile
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from fakes import envoy_serving, patience
from fakes.loopback import loopback_network
from gatehouse.agent.connection_metrics import (
    ENVOY_CONNECTIONS,
    NGINX_CONNECTIONS,
    ConnectionFormat,
    ConnectionMetrics,
)
from gatehouse.agent.error_log import ErrorLog
from gatehouse.agent.nginx import binary as nginx_binary
from gatehouse.agent.nginx.failed_attempts import failed_attempts
from gatehouse.agent.nginx.failure_causes import FailureCauses
from gatehouse.agent.nginx.main_conf import connection_log_directive, request_log_directive
from gatehouse.agent.request_lines import ENVOY_LINES, NGINX_LINES, Format
from gatehouse.agent.request_metrics import RouteMetrics
from gatehouse.compiler.backends import nginx
from gatehouse.compiler.backends.envoy import l4
from gatehouse.compiler.backends.nginx import stream
from gatehouse.compiler.ir.gateway import GatewayConfiguration
from gatehouse.dataplane import connection_counts, request_log

ABLE = msgspec.structs.replace(
    nginx.NginxCapabilities.parse("1.31.3"), access_log=True, failure_causes=True
)

PROXIES = ("nginx", "envoy")


@pytest.fixture
def short_udp_sessions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have sessions end after a second without datagrams."""
    monkeypatch.setattr(stream, "_UDP_IDLE", "1s")
    monkeypatch.setattr(l4, "_UDP_IDLE", 1.0)


class LoggedGateway(msgspec.Struct, frozen=True):
    """An address, the entries of its proxy, and the metrics of its requests and connections."""

    address: str
    log: Path
    requests: RouteMetrics
    connections: ConnectionMetrics
    failures: dict[str, str]
    """Last text of the proxy about a failure, by the name of the backend."""
    error_log: Path | None = None
    """Error log of NGINX."""
    causes: FailureCauses | None = None
    """Causes in the error log of NGINX."""

    def lines(self) -> list[str]:
        """Return the complete lines of the log, as an agent writes them."""
        data = self.log.read_bytes()
        data = data[: data.rfind(b"\n") + 1]
        if self.causes is not None:
            data = b"".join(entries for _, entries in self.causes.access_entries(data))
        return data.decode(errors="surrogateescape").splitlines()

    def entries(self) -> list[dict[str, Any]]:
        """Return all entries."""
        return [json.loads(line) for line in self.lines()]

    async def entry(self, **fields: Any) -> dict[str, Any]:
        """Wait for the only entry with these fields, and return it."""
        matching: list[dict[str, Any]] = []
        with contextlib.suppress(TimeoutError):
            async with patience.limit():
                while not matching:
                    entries = self.entries()
                    matching = [e for e in entries if all(e.get(k) == v for k, v in fields.items())]
                    await patience.pause()
        assert len(matching) == 1, (fields, self.lines())
        return matching[0]


@contextlib.asynccontextmanager
async def logged(
    proxy: str, gateway: GatewayConfiguration, *, modules: tuple[str, ...] = ()
) -> AsyncIterator[LoggedGateway]:
    """Serve a gateway by one of :data:`PROXIES`. ``modules``: those of NGINX that it needs."""
    with tempfile.TemporaryDirectory(prefix="ghl-") as name:
        directory = Path(name)
        output = directory / "output"
        if proxy == "envoy":
            async with envoy_serving.serving(gateway, output=output) as served:
                file = served.running.log.with_name(request_log.FILE)
                counting = _counting(file, ENVOY_LINES, ENVOY_CONNECTIONS, lambda lines: lines)
                async with counting as metrics:
                    yield LoggedGateway(served.address, output, *metrics)
            return
        address = f"{loopback_network()}.2"
        bound = msgspec.structs.replace(gateway, bind_address=address)
        file = directory / request_log.FILE
        error_log = ErrorLog(directory / "error.log")
        causes = FailureCauses(error_log.read, directory)
        error_log.observe = lambda lines: causes.remember(failed_attempts(lines))
        error_log.read()
        able = msgspec.structs.replace(ABLE, modules=frozenset(modules))
        program = NginxProgram(nginx_binary.find_nginx_binary(None), able)
        async with (
            running_nginx(bound, directory, output, program),
            _counting(file, NGINX_LINES, NGINX_CONNECTIONS, causes.counted_lines) as metrics,
        ):
            yield LoggedGateway(address, output, *metrics, directory / "error.log", causes)


@contextlib.asynccontextmanager
async def _counting(
    file: Path,
    log_format: Format,
    connection_format: ConnectionFormat,
    completed: Callable[[bytes], bytes],
) -> AsyncIterator[tuple[RouteMetrics, ConnectionMetrics, dict[str, str]]]:
    labels = {"gateway": "gw"}
    failures: dict[str, str] = {}

    def on_failure(backend: str, text: str) -> None:
        failures[backend.rpartition("/")[2]] = text

    requests = RouteMetrics(file, log_format, labels, on_failure, completed)
    connections = ConnectionMetrics(
        file.with_name(connection_counts.CONNECTIONS_FILE), connection_format, labels, completed
    )
    tasks = [asyncio.create_task(metrics.run()) for metrics in (requests, connections)]
    try:
        yield requests, connections, failures
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class NginxProgram(msgspec.Struct, frozen=True):
    """An NGINX with its capabilities, and the files of the modules that it loads."""

    path: Path
    able: nginx.NginxCapabilities
    modules: tuple[Path, ...] = ()


@contextlib.asynccontextmanager
async def running_nginx(
    gateway: GatewayConfiguration, base: Path, output: Path, program: NginxProgram | None = None
) -> AsyncIterator[None]:
    """Run NGINX with the files of a gateway, and its standard output in a file.

    It writes its logs after 10 ms, not after a second. ``program``: another NGINX than that of the
    other tests.
    """
    program = program or NginxProgram(nginx_binary.find_nginx_binary(None), ABLE)
    generated = nginx.NginxGenerator(program.able).generate(gateway)
    assert not generated.unsupported, generated.unsupported
    for path, content in generated.file_set.files.items():
        (base / path).parent.mkdir(parents=True, exist_ok=True)
        (base / path).write_bytes(content.content.replace(b"flush=1s", b"flush=10ms"))
    kinds = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    temp = " ".join(f"{kind}_temp_path {base}/{kind};" for kind in kinds)
    user = "user root;" if os.geteuid() == 0 else ""
    has_log = "gatehouse/access_log.conf" in generated.file_set.files
    log = "include gatehouse/access_log.conf;" if has_log else ""
    log += f"include gatehouse/request_log.conf; {request_log_directive(base / request_log.FILE)}"
    has_streams = "gatehouse/stream.conf" in generated.file_set.files
    has_counts = "gatehouse/connection_log.conf" in generated.file_set.files
    counted = (
        connection_log_directive(base / connection_counts.CONNECTIONS_FILE) if has_counts else ""
    )
    loaded = " ".join(f'load_module "{module}";' for module in program.modules)
    main = (
        f"{loaded} {user} daemon off; pid {base}/pid; error_log {base}/error.log warn; "
        f"events {{ worker_connections 1024; }} "
        f"http {{ {temp} include gatehouse/http.conf; {log} }} "
        f"{f'stream {{ include gatehouse/stream.conf; {counted} }}' if has_streams else ''}"
    )
    (base / "nginx.conf").write_text(main.replace("flush=1s", "flush=10ms"))
    with output.open("ab") as file:
        process = await asyncio.create_subprocess_exec(
            str(program.path),
            *("-p", str(base), "-c", str(base / "nginx.conf"), "-e", f"{base}/error.log"),
            stdout=file,
        )
    try:
        async with patience.limit():
            while not (base / "pid").exists() or not (base / "pid").read_text():
                assert process.returncode is None, (base / "error.log").read_text()
                await patience.pause()
        yield
        errors = (base / "error.log").read_text()
        assert "uninitialized" not in errors, errors
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGTERM)
        await process.wait()
