"""A program that passes for NGINX Plus: the open-source NGINX, with a fake API that it follows.

It is what ``nginx -V`` says (``nginx-plus-r36``), takes what only NGINX Plus knows out of the
configuration, and has the API at the place that ``api`` names. The translation is beside the
original, so that a reload finds it by the same links: ``<generation>/.oss``.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
import subprocess
import sys
from pathlib import Path

from fakes import patience

VERSION = "nginx version: nginx/1.29.3 (nginx-plus-r36)"

TRANSLATED = ".oss"

_STATE = re.compile(r'(?<![\w/])state\s+"?([^";]+)"?;')
_API = re.compile(r"(?<![\w/])api(\s+write=on)?;")
_LICENCE = re.compile(r"(?<![\w/])mgmt\s*\{[^{}]*\}")
_DROPPED = re.compile(r"^\s*(?:status_zone|keyval_zone|keyval)\s[^;]*;$", re.MULTILINE)


def install(directory: Path, nginx: Path) -> Path:
    """Make the program in ``directory``, around a real NGINX."""
    directory.mkdir(exist_ok=True)
    program = directory / "nginx"
    lines = (
        f"#!{sys.executable}",
        "import sys",
        f"sys.path.insert(0, {str(Path(__file__).parents[1])!r})",
        "from fakes import nginx_plus_binary",
        f"nginx_plus_binary.main({str(directory)!r}, {str(nginx)!r})",
    )
    program.write_text("\n".join(lines) + "\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return program


def translate(conf: Path, prefix: Path, socket: Path) -> Path:
    """Translate ``conf`` and its files for open-source NGINX. Return the main file."""
    source = conf.parent
    target = source / TRANSLATED
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir()
    for path in sorted(source.rglob("*")):
        relative = path.relative_to(source)
        if relative.parts[0] == TRANSLATED:
            continue
        if path.is_symlink() or (path.is_file() and path.suffix != ".conf"):
            (target / relative).symlink_to(path.resolve())
        elif path.is_dir():
            (target / relative).mkdir()
        else:
            (target / relative).write_text(translated(path.read_text(), prefix, socket))
    return target / conf.name


def state_file(named: str, prefix: Path) -> Path:
    """Return the path of a state file; those in NGINX Plus' own directory are under ``prefix``."""
    path = prefix / named
    if not path.is_relative_to(prefix):
        path = prefix / "elsewhere" / path.name
    path.parent.mkdir(exist_ok=True)
    return path


def translated(text: str, prefix: Path, socket: Path) -> str:
    """Translate one file."""

    def state(match: re.Match[str]) -> str:
        path = state_file(match[1], prefix)
        path.touch()
        return f'include "{path}"; server 127.0.0.1:9 down;'

    text = _STATE.sub(state, _LICENCE.sub("", _DROPPED.sub("", text)))
    return _API.sub(f"proxy_pass http://unix:{socket}:;", text)


def main(directory: str, nginx: str) -> None:
    """Be NGINX Plus."""
    arguments = sys.argv[1:]
    if arguments == ["-V"]:
        done = subprocess.run([nginx, "-V"], capture_output=True, text=True, check=True)
        sys.stderr.write("\n".join([VERSION, *done.stderr.splitlines()[1:]]) + "\n")
        return
    prefix, conf = (Path(arguments[arguments.index(name) + 1]) for name in ("-p", "-c"))
    socket = Path(directory) / "api.sock"
    translate(conf.parent.resolve() / conf.name, prefix, socket)
    ours = [nginx, *arguments]
    ours[ours.index("-c") + 1] = str(conf.parent / TRANSLATED / conf.name)
    if "-t" in arguments:
        done = subprocess.run(ours, capture_output=True, text=True, check=False)
        sys.stderr.write(done.stderr.replace(f"/{TRANSLATED}/", "/"))
        sys.exit(done.returncode)
    # By its title a master is known for that of a main file.
    ours[ours.index("-g") + 1] += f" # {conf} "
    _start_api(Path(directory), prefix, socket)
    os.execv(nginx, [_sender(prefix) or nginx, *ours[1:]])


def _sender(prefix: Path) -> str:
    """Return the script of the agent that a master executes to hand over its sockets.

    The agent passes it as the first argument, which a program with an interpreter does not get.
    """
    places = (prefix.parent / "run" / "nginx", prefix / "nginx")
    return next((str(path) for path in places if path.is_file()), "")


def _start_api(directory: Path, prefix: Path, socket: Path) -> None:
    """Start the API outside the master's children, since these are its workers."""
    socket.unlink(missing_ok=True)
    master = os.getpid()
    if (child := os.fork()) == 0:
        if os.fork() == 0:
            with (directory / "bridge.log").open("ab") as log:
                os.dup2(log.fileno(), 1)
                os.dup2(log.fileno(), 2)
            places = [str(directory), str(prefix), str(socket), str(master)]
            path = str(Path(__file__).parents[1])
            environ = os.environ | {"PYTHONPATH": path}
            os.execve(
                sys.executable, [sys.executable, "-m", "fakes.nginx_plus.bridge", *places], environ
            )
        os._exit(0)
    os.waitpid(child, 0)
    patience.wait_until(socket.exists)
