"""A headless Chromium, driven by the DevTools protocol."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import shutil
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp

from fakes import patience

CHROMIUM = os.environ.get("CHROMIUM") or shutil.which("chromium") or ""
"""Path of the browser; empty if there is none. Debian's package `chromium` has it."""

_FLAGS = (
    *("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"),
    *("--no-first-run", "--disable-extensions", "--disable-background-networking"),
    *("--remote-debugging-port=0", "--window-size=1280,800", "about:blank"),
)


_NAVIGATED = "Inspected target navigated"
"""Text of the error of an expression whose document is replaced meanwhile."""


class Page:
    """A tab."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._numbers = itertools.count(1)

    async def call(self, method: str, **parameters: Any) -> Any:
        """Return the result of a method of the protocol."""
        number = next(self._numbers)
        await self._socket.send_json({"id": number, "method": method, "params": parameters})
        async for message in self._socket:
            response = json.loads(message.data)
            if response.get("id") == number:
                assert "error" not in response, response
                return response["result"]
        raise AssertionError("the browser ended")

    async def evaluate(self, expression: str) -> Any:
        """Return the value of a JavaScript expression, or of its promise."""
        result = await self.call(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    async def _evaluate_in_document(self, expression: str) -> Any:
        """Return the value of an expression; None while one document replaces another."""
        try:
            return await self.evaluate(expression)
        except AssertionError as error:
            if _NAVIGATED not in str(error):
                raise
            return None

    async def click(self, element: str) -> None:
        """Click an element, also a link to another document."""
        await self._evaluate_in_document(f"{element}.click()")

    async def until(self, expression: str) -> Any:
        """Return the value of an expression when it is true."""
        value = None
        with contextlib.suppress(TimeoutError):
            async with patience.limit():
                while not (value := await self._evaluate_in_document(expression)):
                    await patience.pause()
        assert value, (expression, await self.evaluate("document.body.innerText"))
        return value

    async def press(self, *keys: str) -> None:
        """Press keys, by their names of the DOM."""
        for key in keys:
            for kind in ("rawKeyDown", "keyUp"):
                await self.call("Input.dispatchKeyEvent", type=kind, key=key)


@contextlib.asynccontextmanager
async def open_page() -> AsyncIterator[Page]:
    """Start the browser with one tab."""
    with tempfile.TemporaryDirectory(prefix="gh-chromium-", ignore_cleanup_errors=True) as profile:
        process = await asyncio.create_subprocess_exec(
            CHROMIUM,
            f"--user-data-dir={profile}",
            *_FLAGS,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
        )
        try:
            port = await _port(Path(profile) / "DevToolsActivePort")
            async with aiohttp.ClientSession() as session:
                async with session.get(f"http://127.0.0.1:{port}/json/list") as response:
                    targets = await response.json()
                (target,) = (item for item in targets if item["type"] == "page")
                async with session.ws_connect(
                    target["webSocketDebuggerUrl"], max_msg_size=0
                ) as socket:
                    yield Page(socket)
        finally:
            process.terminate()
            await process.wait()


async def _port(file: Path) -> int:
    async with patience.limit():
        while True:
            with contextlib.suppress(OSError, IndexError, ValueError):
                text = await asyncio.to_thread(file.read_text)
                return int(text.splitlines()[0])
            await patience.pause()
