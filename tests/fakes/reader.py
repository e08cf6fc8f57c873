"""A reader of documents: a shell with a network of its own that runs the commands of a page.

Fixed ports of documents do not meet those of other tests. Every process ends with the shell.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from fakes.documentation import ROOT

ISOLATED = ("unshare", "--net", "--pid", "--fork", "--kill-child", "--mount-proc")
COMMAND_TIMEOUT_SECONDS = float(os.environ.get("READER_SECONDS", "120"))
"""Time in which a command must succeed. A reader repeats one whose object is not ready yet."""
RETRY_PAUSE_SECONDS = 1.0
LINKS = (".venv", "examples", "tests", "docs")


def can_isolate() -> bool:
    """Return whether this process may create namespaces, which needs root."""
    if os.geteuid() != 0 or not shutil.which("unshare"):
        return False
    return subprocess.run([*ISOLATED, "true"], check=False, capture_output=True).returncode == 0


class Reader:
    """A shell in a directory that looks like the checkout, with an empty home directory."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        for name in LINKS:
            (directory / name).symlink_to(ROOT / name)
        home = directory / "home"
        home.mkdir()
        path = f"{ROOT / '.venv' / 'bin'}:{os.environ['PATH']}"
        dropped = ("KUBECONFIG", "XDG_STATE_HOME")
        environment = {name: value for name, value in os.environ.items() if name not in dropped}
        self._shell = subprocess.Popen(
            [*ISOLATED, "bash", "--norc"],
            cwd=directory,
            env={**environment, "HOME": str(home), "PATH": path},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        status, output = self._send("ip link set lo up")
        assert status == 0, output

    def close(self) -> None:
        """End all processes of the shell."""
        self._shell.kill()
        self._shell.communicate()

    def run(self, command: str, output: str = "") -> str:
        """Run a command until it succeeds and its output matches. Return the output.

        A command that ends with `&` runs in the background, with its output in a file. `output` is
        documented output: see :func:`matches`. Raises AssertionError after the timeout.
        """
        command = re.sub(r"\s+#.*$", "", command).rstrip()
        if command.endswith("&"):
            status, text = self._send(f"{{ {command[:-1]}; }} >background.log 2>&1 </dev/null &")
            assert status == 0, text
            return text
        deadline = time.monotonic() + COMMAND_TIMEOUT_SECONDS
        while True:
            status, text = self._send(command)
            if status == 0 and matches(text, output):
                return text
            log = self.directory / "background.log"
            assert time.monotonic() < deadline, f"{command}\n{text}\n{log.read_text()[-4000:]}"
            time.sleep(RETRY_PAUSE_SECONDS)

    def _send(self, command: str) -> tuple[int, str]:
        """Run a command in the shell once. Return its exit status and output."""
        assert self._shell.stdin is not None
        assert self._shell.stdout is not None
        end = f"end of command {time.monotonic_ns()}"
        # The command is no part of a subshell, so that `export` has an effect.
        self._shell.stdin.write(
            f"{{ {command}\n}} </dev/null; status=$?; echo; echo {end} $status\n"
        )
        self._shell.stdin.flush()
        lines: list[str] = []
        for line in self._shell.stdout:
            if line.startswith(end):
                return int(line.removeprefix(end)), "".join(lines).removesuffix("\n")
            lines.append(line)
        raise AssertionError("".join(lines))


def matches(text: str, documented: str) -> bool:
    """Return whether an output has each documented line.

    `…` stands for any text, and a number with a unit of time for any age. The amount of space
    between columns is ignored.
    """
    lines = [" ".join(line.split()) for line in text.splitlines()]
    return all(
        any(_pattern(line).fullmatch(present) for present in lines)
        for line in documented.splitlines()
    )


def _pattern(line: str) -> re.Pattern[str]:
    escaped = re.escape(" ".join(line.split())).replace(re.escape("…"), ".*")
    return re.compile(re.sub(r"(?<=\ )\d+[smh]$", r"\\d+[smh]", escaped))


@contextlib.contextmanager
def reading() -> Iterator[Reader]:
    """Run a reader for a while."""
    with tempfile.TemporaryDirectory(prefix="ghr-") as name:
        directory = Path(name)
        # Data planes run as other users.
        directory.chmod(0o755)
        reader = Reader(directory)
        try:
            yield reader
        finally:
            reader.close()
