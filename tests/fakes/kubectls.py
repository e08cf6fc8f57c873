"""The real kubectl, in every version that this machine has."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

from fakes.patience import SECONDS
from fakes.process import environment


class Kubectl:
    """A kubectl with a namespace of its own."""

    def __init__(self, binary: str, kubeconfig: Path, home: Path, namespace: str) -> None:
        self._binary, self._home = binary, home
        self._kubeconfig, self.namespace = kubeconfig, namespace
        answer = subprocess.run(
            [binary, "version", "--client", "-o", "json"], capture_output=True, check=False
        )
        match = re.search(rb'"gitVersion": *"v1\.(\d+)', answer.stdout)
        self.minor = int(match[1]) if match else 99

    def start(self, *arguments: str, **more: str) -> subprocess.Popen[str]:
        env = environment(KUBECONFIG=str(self._kubeconfig), HOME=str(self._home), **more)
        return subprocess.Popen(
            [self._binary, "-n", self.namespace, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=env,
        )

    def fails(self, *arguments: str, stdin: Any = None, **more: str) -> str:
        code, out = self._run(arguments, stdin, more)
        assert code != 0, out
        return out

    def __call__(self, *arguments: str, stdin: Any = None, **more: str) -> str:
        code, out = self._run(arguments, stdin, more)
        assert code == 0, out
        return out

    def run(self, *arguments: str, stdin: Any = None) -> tuple[int, str]:
        """Return exit code and output of a command."""
        return self._run(arguments, stdin, {})

    def _run(self, arguments: tuple[str, ...], stdin: Any, more: dict[str, str]) -> tuple[int, str]:
        text = stdin if isinstance(stdin, str | None) else json.dumps(stdin)
        process = self.start(*arguments, **more)
        out, _ = process.communicate(text, timeout=SECONDS)
        return process.returncode, out

    def json(self, *arguments: str) -> Any:
        return json.loads(self(*arguments, "-o", "json"))


def binaries() -> list[str]:
    named = [path for path in os.environ.get("KUBECTLS", "").split(":") if os.access(path, os.X_OK)]
    result = shutil.which("kubectl")
    return [*([result] if result else []), *named]


def newest() -> str:
    """Return one that does what its kubeconfig says, and nothing before.

    That of Google's SDK first asks the server for its version, past any ``proxy-url``, and then
    starts one of those beside it.
    """
    result = binaries()[0]
    version = subprocess.run([result, "version", "--client"], capture_output=True, check=False)
    if b"-dispatcher" not in version.stdout:
        return result
    beside = Path(result).resolve().parent.glob("kubectl.1.*")
    return str(max(beside, key=lambda path: int(path.suffix[1:])))


MAP: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "ConfigMap",
    "metadata": {"name": "settings", "labels": {"app": "cafe"}},
    "data": {"colour": "red"},
}


def table(text: str) -> list[list[str]]:
    return [line.split() for line in text.strip().splitlines()]
