"""An API server in the test's own process, over TLS."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import shutil
import ssl
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import msgspec

from fakes.process import ApiServer
from gatehouse.apiserver_extension.extension import GATEHOUSE
from gatehouse.kube import client as kube
from gatehouse.standalone import pki
from gatehouse.standalone.state_directory import State
from kube_api_server import main


class Server:
    """A server over a directory; ``options`` overrides how it is run.

    A new directory has what a first start creates, since that takes three times as much CPU as a
    later one. All of them in a process have the same CA and the same keys.
    """

    def __init__(self, state: State, **options: Any) -> None:
        self.state = state
        self.port = 0
        self._options = options
        if not state.directory.exists():
            shutil.copytree(_started_once().name, state.directory)
        state.pki.ensure()

    def options(self) -> main.ApiServerOptions:
        pair = self.state.pki.leaf(pki.APISERVER)
        agent_options = main.ApiServerOptions(
            storage=str(self.state.database),
            bind="127.0.0.1:0",
            tls_cert=pair.cert,
            tls_key=pair.key,
            client_ca=self.state.pki.ca().cert,
            token_key=self.state.pki.token_key,
            extension=GATEHOUSE,
        )
        return msgspec.structs.replace(agent_options, **self._options)

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        stop, ready = asyncio.Event(), asyncio.get_running_loop().create_future()
        task = asyncio.create_task(main.run_api_server(self.options(), stop, ready.set_result))
        await asyncio.wait({task, ready}, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            await task
        self.port = await ready
        self.state.write_kubeconfigs(f"https://127.0.0.1:{self.port}")
        try:
            yield
        finally:
            stop.set()
            await task

    def client(self, path: Path | None = None) -> kube.Client:
        return kube.Client.from_kubeconfig(path or self.state.kubeconfig)

    def raw(self, **headers: str) -> aiohttp.ClientSession:
        """A plain HTTP session: the admin's, unless there is an Authorization header."""
        context = ssl.create_default_context(cafile=str(self.state.pki.ca().cert))
        pair = self.state.pki.leaf(pki.ADMIN)
        if "Authorization" not in headers:
            context.load_cert_chain(pair.cert, pair.key)
        return aiohttp.ClientSession(
            f"https://127.0.0.1:{self.port}",
            connector=aiohttp.TCPConnector(ssl=context),
            headers=headers,
        )


@functools.cache
def _started_once() -> tempfile.TemporaryDirectory[str]:
    """Return the directory of a server that has stopped, which ends with this process.

    The server was a process: what a test replaces in this one had no effect on it.
    """
    result = tempfile.TemporaryDirectory(prefix="gatehouse-started-once-")
    server = ApiServer(Path(result.name))
    server.start()
    server.stop()
    return result
