"""Client of Envoy's admin interface."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gatehouse.agent.envoy import admin
from gatehouse.agent.envoy.admin import AdminClient

OK = b"HTTP/1.1 200 OK\r\n"
CHUNKED = OK + b"transfer-encoding: chunked\r\n\r\n"
BODY = b'{"x": "one", "y": "no", "x": "two"}, "x": "three"'
PATTERN = re.compile(rb'"x": "([a-z]+)"')


@contextlib.asynccontextmanager
async def answering(socket: Path, response: bytes) -> AsyncIterator[AdminClient]:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(response)
        writer.close()
        await writer.wait_closed()

    async with await asyncio.start_unix_server(answer, socket):
        yield AdminClient(socket)


def chunked(size: int) -> bytes:
    parts = [BODY[start : start + size] for start in range(0, len(BODY), size)]
    chunks = b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in parts)
    return CHUNKED + chunks + b"0\r\n\r\n"


@pytest.mark.parametrize("piece", [1, 7, 1 << 16])
@pytest.mark.parametrize("response", [OK + b"\r\n" + BODY, chunked(1), chunked(9), chunked(100)])
async def test_matches_are_found_wherever_a_response_is_divided(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, response: bytes, piece: int
) -> None:
    monkeypatch.setattr(admin, "_PIECE_BYTES", piece)
    monkeypatch.setattr(admin, "_MAX_MATCH_BYTES", 20)
    async with answering(tmp_path / "admin.sock", response) as client:
        assert await client.find("/config_dump", PATTERN) == ["one", "two", "three"]


@pytest.mark.parametrize(
    "response",
    [
        b"",
        b"HTTP/1.1 503 Service Unavailable\r\n\r\n" + BODY,
        b"no HTTP\r\n\r\n",
        CHUNKED + b"9\r\n{",
        CHUNKED + b"1\r\n{",
        CHUNKED + b"x\r\n{",
        CHUNKED + b"1\r\n{\r\n",
    ],
)
async def test_odd_or_truncated_responses_are_errors(tmp_path: Path, response: bytes) -> None:
    async with answering(tmp_path / "admin.sock", response) as client:
        with pytest.raises(OSError):
            await client.find("/config_dump", PATTERN)


async def test_envoy_that_does_not_respond_in_time_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admin, "FIND_TIMEOUT_SECONDS", 0.01)

    ended = asyncio.Event()

    async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()
        ended.set()

    async with await asyncio.start_unix_server(hang, tmp_path / "admin.sock"):
        with pytest.raises(OSError, match="no response"):
            await AdminClient(tmp_path / "admin.sock").find("/config_dump", PATTERN)
        await ended.wait()
