"""First process of the cluster's namespaces: mounts, networks, and programs that run indefinitely.

A program that ends starts again a second later, as static Pods and services of an init system do.
"""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from cluster import layout, networks, nodes
from cluster.control_plane import Program, control_plane

RESTART_SECONDS = 1.0


def main() -> None:
    """Run the cluster until the process is killed."""
    _mount()
    socket.sethostname("cluster")
    networks.set_up()
    (layout.RUN / "resolv.conf").write_text(f"nameserver {layout.BRIDGE_ADDRESS}\n")
    layout.LOGS.mkdir(parents=True, exist_ok=True)
    for node in layout.NODES:
        nodes.create_cgroup(node)
    for program in _programs():
        threading.Thread(target=_keep_running, args=(program,), daemon=True).start()
    signal.pause()


def _mount() -> None:
    """Keep mounts to this namespace, with a /run of its own that nodes share with their Pods."""
    for words in (
        ("mount", "--make-rprivate", "/"),
        ("mount", "-t", "tmpfs", "tmpfs", "/run"),
        ("mount", "--make-rshared", "/"),
    ):
        subprocess.run(words, check=True)
    layout.NAMESPACES.mkdir(parents=True)
    Path("/run/lock").mkdir(exist_ok=True)


def _programs() -> Iterator[Program]:
    yield from control_plane()
    for node in layout.NODES:
        yield from nodes.programs(node)
    yield Program("load-balancers", "", (sys.executable, "-m", "cluster.load_balancers"))


def _keep_running(program: Program) -> None:
    while True:
        with (layout.LOGS / f"{program.name}.log").open("ab") as log:
            words = networks.enter(program.network, *program.words)
            result = subprocess.run(words, stdout=log, stderr=log, check=False)
            log.write(f"{program.name} ended with {result.returncode}\n".encode())
        time.sleep(RESTART_SECONDS)


if __name__ == "__main__":
    main()
