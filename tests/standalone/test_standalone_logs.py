"""Logs of Pods: their size is limited while the process writes."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from fakes import patience
from gatehouse.standalone.node import log_index


async def test_large_log_is_moved_while_the_process_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_index, "MAX_LOG_BYTES", 1000)
    log = tmp_path / "log"
    indexing = asyncio.create_task(log_index.index(log))
    try:
        with log.open("ab", buffering=0) as file:
            file.write(b"old\n" * 300)
            await patience.until(lambda: not log.stat().st_size)
            file.write(b"new\n")
        assert log.read_bytes() == b"new\n"
        assert log.with_name(log_index.PREVIOUS).read_bytes() == b"old\n" * 300
    finally:
        indexing.cancel()
