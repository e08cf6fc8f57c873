"""The fake API over the upstreams of a running open-source NGINX, so that traffic follows it.

This process holds the state that NGINX Plus has in memory. It reads the state again whenever
another configuration becomes current. It writes each change into the state files and lets NGINX
load them. It ends with the master. Run by ``nginx_plus_binary``; a test speaks to it by files:

- ``faults.json``: a list of :class:`~nginx_plus.faults.Fault`, from the next request on;
- ``calls.jsonl``: every request that was answered;
- ``reloads``: a line for each reload that was this process' own.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import crossplane
import msgspec

from fakes import patience
from fakes.nginx_plus.api import Call, FakePlus
from fakes.nginx_plus.faults import Fault
from fakes.nginx_plus.model import Keyval, Plus, Upstream
from fakes.nginx_plus_binary import state_file


def load_state(conf: Path, prefix: Path) -> Plus:
    """Return the state of NGINX Plus after it loaded this configuration and its state files."""
    parsed = crossplane.parse(str(conf), combine=True, comments=False)
    plus = Plus()
    plus.stream = False
    for kind, node in _blocks(parsed["config"][0]["parsed"], "http", "stream"):
        plus.stream = plus.stream or kind == "stream"
        for directive in node["block"]:
            if directive["directive"] == "upstream":
                upstream = _upstream(kind, directive, prefix)
                plus.upstreams[kind, upstream.name] = upstream
            elif directive["directive"] == "keyval_zone":
                words = dict(word.split("=", 1) for word in directive["args"])
                name = words["zone"].partition(":")[0]
                plus.keyvals[kind, name] = Keyval(kind, name)
        for _, server in _blocks(node["block"], "server"):
            for _, zone in _blocks(server["block"], "status_zone"):
                plus.server_zones[kind].append(zone["args"][0])
    return plus


def _blocks(nodes: list[dict[str, Any]], *names: str) -> Iterator[tuple[str, dict[str, Any]]]:
    return ((node["directive"], node) for node in nodes if node["directive"] in names)


def _upstream(kind: str, node: dict[str, Any], prefix: Path) -> Upstream:
    inner = {directive["directive"]: directive["args"] for directive in node["block"]}
    state = state_file(inner["state"][0], prefix) if "state" in inner else None
    zone = inner.get("zone", [""])[0]
    upstream = Upstream(kind, node["args"][0], zone=zone, state=state, backup="hash" not in inner)
    for _, server in _blocks(node["block"], "server"):
        upstream.load(" ".join(server["args"]))
    return upstream


class Bridge:
    """The API of one master."""

    def __init__(self, directory: Path, prefix: Path, master: int) -> None:
        self._directory, self._prefix, self._master = directory, prefix, master
        self._generation, self._faulted = "", 0
        self.fake = FakePlus(Plus())
        self.fake.before, self.fake.after = self._refresh, self._note

    def _refresh(self) -> None:
        generation = str((self._prefix / "current").readlink())
        if generation != self._generation:
            self._generation = generation
            self.fake.plus = load_state(self._prefix / "current" / "nginx.conf", self._prefix)
            self.fake.plus.on_change = self._reload
        faults = self._directory / "faults.json"
        if faults.exists() and faults.stat().st_mtime_ns != self._faulted:
            self._faulted = faults.stat().st_mtime_ns
            self.fake.faults = msgspec.json.decode(faults.read_bytes(), type=list[Fault])

    def _note(self, call: Call) -> None:
        with (self._directory / "calls.jsonl").open("ab") as file:
            file.write(msgspec.json.encode(call) + b"\n")

    def _reload(self) -> None:
        """Have the real NGINX follow; as NGINX Plus has no such moment, wait until it is over."""
        old = _children(self._master)
        with (self._directory / "reloads").open("a") as file:
            file.write("reload\n")
        os.kill(self._master, signal.SIGHUP)
        deadline = time.monotonic() + patience.SECONDS
        while time.monotonic() < deadline:
            if _children(self._master) - old and all(_retired(pid) for pid in old):
                return
            patience.pause_thread()

    async def run(self, socket: Path) -> None:
        """Serve until the master is gone."""
        async with self.fake.serving(socket):
            while _alive(self._master):
                await patience.pause()


def _alive(pid: int) -> bool:
    # Not by its title, which is empty for a moment while a process becomes another program.
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return False
    return text.rpartition(")")[2].split()[0] not in ("Z", "X")


def _title(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text(errors="replace")
    except OSError:
        return ""


def _retired(pid: int) -> bool:
    return not _alive(pid) or "shutting down" in _title(pid)


def _children(pid: int) -> set[int]:
    try:
        return set(map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split()))
    except OSError:
        return set()


if __name__ == "__main__":
    DIRECTORY, PREFIX, SOCKET = map(Path, sys.argv[1:4])
    asyncio.run(Bridge(DIRECTORY, PREFIX, int(sys.argv[4])).run(SOCKET))
