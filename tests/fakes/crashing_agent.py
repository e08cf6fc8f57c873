"""An agent with a planned crash: it kills itself once, after the step that a file names.

Run as a program, with the agent's environment and ``DIE_AT``, the path of that file.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from fakes import patience
from gatehouse.agent.nginx import main
from gatehouse.agent.nginx import master as masters
from gatehouse.agent.nginx.apply_steps import ApplyStep
from gatehouse.agent.nginx.paths import NginxPaths
from gatehouse.agent.nginx.revision_store import RevisionStore
from gatehouse.runtime import procfs


class CrashingAgent:
    """Directories and processes of one agent; each restarted agent uses the same directories."""

    def __init__(self, environ: dict[str, str], directory: Path) -> None:
        self.directory = directory
        self._order = directory / "die-at"
        self._log = directory / "agent.log"
        # The program imports other fakes.
        path = f"{Path(__file__).parents[1]}:{os.environ.get('PYTHONPATH', '')}"
        own = {"DIE_AT": str(self._order), "PYTHONPATH": path}
        self._environ = dict(os.environ) | environ | own
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> subprocess.Popen[bytes]:
        """Start one; the one before must have ended."""
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, __file__], env=self._environ, stdout=log, stderr=log
            )
        return self.process

    def die_at(self, step: ApplyStep) -> None:
        """Have the running one die after this step, when it next comes to it."""
        new = self._order.with_name("die-at.new")
        new.write_text(step)
        new.replace(self._order)

    async def died(self) -> None:
        """Wait until it has."""
        assert self.process is not None
        async with patience.limit():
            assert await asyncio.to_thread(self.process.wait) == -signal.SIGKILL

    def kill_nginx(self) -> None:
        """Kill master and workers, as when the machine goes down."""
        master = self.master()
        for pid in (master, *procfs.pids_in_session(master)):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def master(self) -> int:
        """NGINX's."""
        paths = NginxPaths(self.directory / "root", self.directory / "run")
        pid = masters.read_pid_file(paths)
        if pid is None:
            raise FileNotFoundError(paths.pid)
        return pid

    def log(self) -> str:
        """Return the agent's log."""
        return self._log.read_text(errors="replace")

    def end(self) -> None:
        """End it and its NGINX, however they are."""
        process = self.process
        if process is not None and process.poll() is None:
            process.terminate()
            try:
                process.wait(patience.SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        with contextlib.suppress(OSError, ValueError):
            self.kill_nginx()


@contextlib.contextmanager
def dying_agent(environ: dict[str, str], directory: Path) -> Iterator[CrashingAgent]:
    """Run one; it is ended in any case."""
    agent = CrashingAgent(environ, directory)
    agent.start()
    try:
        yield agent
    except BaseException:
        print(agent.log()[-6000:], file=sys.stderr)
        raise
    finally:
        agent.end()


def assert_tidy(root: Path) -> None:
    """Assert that the disk has the served revision, the previous one, and their contents only."""
    assert not [path for path in root.rglob(".*") if path.parent.parent in (root, root.parent)]
    store = RevisionStore(root)
    numbers = store.numbers()
    assert len(numbers) <= 2
    assert store.current() == numbers[-1]
    named = {entry.digest for number in numbers for entry in store.manifest(number).entries}
    assert {path.name for path in (root / "objects").iterdir()} == named


def _on_step(step: ApplyStep) -> None:
    order = Path(os.environ["DIE_AT"])
    try:
        named = order.read_text()
    except FileNotFoundError:
        return
    if named == step:
        order.unlink()
        os.kill(os.getpid(), signal.SIGKILL)


async def _live() -> None:
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    await main.run_nginx_agent(main.options_from_environment(os.environ), stop, _on_step)


if __name__ == "__main__":
    asyncio.run(_live())
