"""A kube-apiserver that has streams: the program in ``kube_streams``, built once."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from fakes import patience
from fakes.loopback import free_port
from fakes.process import environment
from gatehouse.standalone import pki

SOURCE = Path(__file__).with_name("kube_streams")
CACHE = Path(__file__).parents[2] / ".cache"


def built() -> Path:
    """Build the program; a machine without Go has nothing to test with."""
    go = shutil.which("go")
    if go is None:
        pytest.skip("no Go on this machine")
    CACHE.mkdir(exist_ok=True)
    target = CACHE / "kube_streams"
    subprocess.run([go, "build", "-p", "2", "-o", str(target), "."], cwd=SOURCE, check=True)
    return target


@contextlib.asynccontextmanager
async def serving(pair: pki.KeyPair, log: Path) -> AsyncIterator[str]:
    """Run one for a while, and give its URL; ``log``: what it was asked."""
    port = free_port()
    address = f"127.0.0.1:{port}"
    binary = await asyncio.to_thread(built)
    options = ("-cert", str(pair.cert), "-key", str(pair.key), "-listen", address)
    with log.open("wb") as out:
        process = await asyncio.create_subprocess_exec(
            binary, *options, stdout=out, stderr=out, env=environment(HOME=str(log.parent))
        )
    try:
        async with patience.limit():
            while True:
                with contextlib.suppress(OSError):
                    _, writer = await asyncio.open_connection("127.0.0.1", port)
                    writer.close()
                    break
                await patience.pause()
        yield f"https://{address}"
    finally:
        process.kill()
        await process.wait()
