"""A real NGINX that reads a file set without serving it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import msgspec

from fakes import nginx_plus_binary
from gatehouse.agent import system_trust
from gatehouse.agent.nginx import binary
from gatehouse.agent.nginx.main_conf import connection_log_directive
from gatehouse.dataplane import connection_counts
from gatehouse.dataplane.file_set import FileSet

MEASURE = """
import resource, subprocess, sys
code = subprocess.call(sys.argv[1:])
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
sys.exit(code)
"""
"""A small program that runs a command, because the peak of a child includes that of its parent."""


class Check(msgspec.Struct, frozen=True):
    """Result of ``nginx -t``."""

    accepted: bool
    output: str
    peak_bytes: int
    """Largest resident memory of the process."""


def check(
    files: FileSet, directory: Path, *, resolver: str = "127.0.0.1:53", plus: bool = False
) -> Check:
    """Write the files to a directory and let NGINX read them. ``resolver``: empty for none."""
    for path, file in files.files.items():
        (directory / path).parent.mkdir(parents=True, exist_ok=True)
        (directory / path).write_bytes(file.content)
    trusted = system_trust.system_bundle()
    if trusted is not None:
        (directory / "system.pem").write_bytes(Path(trusted).read_bytes())
    temp = "".join(
        f"{kind}_temp_path {directory}/{kind};"
        for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    around = "include gatehouse/main.conf; " if "gatehouse/main.conf" in files.files else ""
    names = f"resolver {resolver};" if resolver else ""
    http = f"{temp} {names} include gatehouse/http.conf;"
    if "gatehouse/request_log.conf" in files.files:
        http += " include gatehouse/request_log.conf;"
    if "gatehouse/access_log.conf" in files.files:
        http += " include gatehouse/access_log.conf;"
    events = "include gatehouse/events.conf;" if "gatehouse/events.conf" in files.files else ""
    main = f"pid {directory}/pid; {around}events {{ {events} }} http {{ {http} }}"
    if "gatehouse/stream.conf" in files.files:
        counted = ""
        if "gatehouse/connection_log.conf" in files.files:
            counted = connection_log_directive(directory / connection_counts.CONNECTIONS_FILE)
        main += f" stream {{ {names} include gatehouse/stream.conf; {counted} }}"
    conf = directory / "nginx.conf"
    conf.write_text(main)
    if plus:
        conf = nginx_plus_binary.translate(conf, directory, directory / "api.sock")
    command = [
        str(binary.find_nginx_binary(None)),
        "-t",
        "-q",
        "-e",
        "stderr",
        "-p",
        str(directory),
    ]
    result = subprocess.run(
        [sys.executable, "-I", "-S", "-c", MEASURE, *command, "-c", str(conf)],
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    return Check(result.returncode == 0, result.stderr, int(result.stdout) * 1024)
