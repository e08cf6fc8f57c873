"""`gatehouse up` of successive builds, between which its data planes go on."""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path

from fakes import patience
from fakes.builds import Build
from fakes.installation import Installation


class Up:
    """Installation on one machine, of successive builds."""

    def __init__(self, directory: Path) -> None:
        self.installation = Installation(directory)

    def start(self, build: Build) -> None:
        python = str(build.directory / "bin" / "python")
        self.installation.command = (python, "-m", "gatehouse")
        self.installation.environment = {**os.environ, **build.environment}
        self.installation.start()

    def leave(self) -> int:
        """End it, but for its data planes."""
        process = self.installation.process
        assert process is not None
        process.send_signal(signal.SIGUSR2)
        return process.wait(patience.SECONDS)

    def proxies(self, executable: str) -> set[int]:
        """Return the pids of its running proxies."""
        directory = str(self.installation.state)
        return {
            int(path.parent.name)
            for path in Path("/proc").glob("[0-9]*/cmdline")
            if (text := _text(path)) and executable in text.split("\0")[0] and directory in text
        }

    def agent_build(self) -> str:
        """Return the directory of the build of the running agent."""
        return _text(Path(f"/proc/{self.installation.agent().pid}/cmdline")).split("\0")[0]


def _text(path: Path) -> str:
    with contextlib.suppress(OSError):
        return path.read_text(errors="replace")
    return ""
