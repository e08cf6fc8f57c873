"""The proxies under test: configuration and process of each."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

from fakes import envoys, patience
from fakes.durations import last
from gatehouse.agent.nginx import binary as nginx_binary
from gatehouse.compiler.backends import envoy, nginx
from gatehouse.compiler.backends.literal_values import SENT_LITERALLY
from gatehouse.compiler.backends.nginx.headers import OWN_HEADER
from gatehouse.compiler.ir.gateway import GatewayConfiguration
from gatehouse.dataplane.file_set import FileSet

PORT = 8080
"""Start timeout of a proxy in seconds, on a busy machine."""

Runner = Callable[[GatewayConfiguration, Path], AbstractAsyncContextManager[None]]


@contextlib.asynccontextmanager
async def with_nginx(
    gateway: GatewayConfiguration,
    directory: Path,
    modules: tuple[str, ...] = (),
    version: str = "1.31.3",
    binary: str | None = None,
    unsupported: tuple[str, ...] = (),
) -> AsyncIterator[None]:
    """Serve a gateway by NGINX; raises AssertionError if anything but a header is unsupported.

    ``version``: the configuration is for it. ``binary``: executable; None: the one that is found.
    ``unsupported``: exact reasons of the other unsupported parts.
    """
    capabilities = nginx.NginxCapabilities.parse(version, modules)
    generated = nginx.NginxGenerator(capabilities).generate(gateway)
    reasons = [
        item.reason
        for item in generated.unsupported
        if not any(text in item.reason for text in (SENT_LITERALLY, OWN_HEADER))
    ]
    assert tuple(reasons) == unsupported
    process = await _nginx(generated.file_set, directory, binary)
    log = directory / "error.log"
    try:
        await _listens(process, gateway.bind_address, log)
        yield
    except ConnectionError as error:
        await last(0.2)
        raise RuntimeError(f"NGINX, status {process.returncode}: {_said(log)}") from error
    finally:
        await _ended(process, log)


async def _nginx(bundle: FileSet, base: Path, executable: str | None) -> asyncio.subprocess.Process:
    for path, file in bundle.files.items():
        (base / path).parent.mkdir(parents=True, exist_ok=True)
        (base / path).write_bytes(file.content)
    kinds = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    temp = " ".join(f"{kind}_temp_path {base}/{kind};" for kind in kinds)
    user = "user root;" if os.geteuid() == 0 else ""
    stream = "stream { include gatehouse/stream.conf; }"
    (base / "nginx.conf").write_text(
        f"{user} daemon off; pid {base}/pid; error_log {base}/error.log warn; "
        f"events {{ worker_connections 1024; }} "
        f"http {{ {temp} access_log off; include gatehouse/http.conf; }} "
        f"{stream if 'gatehouse/stream.conf' in bundle.files else ''}"
    )
    binary = str(nginx_binary.find_nginx_binary(executable))
    return await asyncio.create_subprocess_exec(
        binary, "-p", str(base), "-c", str(base / "nginx.conf"), "-e", f"{base}/error.log"
    )


@contextlib.asynccontextmanager
async def with_envoy(gateway: GatewayConfiguration, directory: Path) -> AsyncIterator[None]:
    """Serve a gateway by Envoy; the oracle must know everything that is unsupported."""
    generated = envoy.EnvoyGenerator(envoy.EnvoyCapabilities()).generate(gateway)
    async with envoys.running(directory) as running:
        running.ads.publish(generated.resources)
        await _listens(running.process, gateway.bind_address, running.log)
        async with patience.limit():
            await running.ads.settled()
        assert not running.ads.refused, running.ads.refused
        try:
            yield
        except ConnectionError as error:
            status = running.process.returncode
            raise RuntimeError(f"Envoy, status {status}: {_said(running.log)}") from error
        if running.process.returncode is not None:
            raise RuntimeError(f"Envoy has ended: {_said(running.log)}")


async def _listens(process: asyncio.subprocess.Process, address: str, log: Path) -> None:
    with contextlib.suppress(TimeoutError):
        async with patience.limit():
            while process.returncode is None:
                with contextlib.suppress(OSError):
                    _, writer = await asyncio.open_connection(address, PORT)
                    writer.close()
                    return
                await patience.pause()
    if process.returncode is None:
        process.kill()
    raise RuntimeError(f"nobody listens, {await process.wait()}: {_said(log)}")


async def _ended(process: asyncio.subprocess.Process, log: Path) -> None:
    if process.returncode is not None:
        raise RuntimeError(f"NGINX has ended, {process.returncode}: {_said(log)}")
    process.send_signal(signal.SIGTERM)
    await process.wait()


def _said(log: Path) -> str:
    return log.read_text()[-2000:] if log.exists() else ""
