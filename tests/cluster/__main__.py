"""Commands of the cluster: ``python -m cluster kube-apiserver|packages|up|down|status|exec``."""

from __future__ import annotations

import argparse
import os
import sys
import time

from cluster import layout, running
from cluster.binaries import MissingProgram, missing_programs, provide_kube_apiserver


def main() -> None:
    """Run one command."""
    parser = argparse.ArgumentParser(prog="cluster", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("kube-apiserver", help="build kube-apiserver for tests, if none is given")
    commands.add_parser("packages", help="print the packages of Debian that this machine lacks")
    commands.add_parser("up", help="start a cluster and load Gatehouse's images into it")
    commands.add_parser("down", help="end the cluster and remove what it wrote")
    commands.add_parser("status", help="show nodes and Pods")
    command = commands.add_parser("exec", help="run a command, such as kubectl, in the cluster")
    command.add_argument("--network", default="", choices=["", layout.CLIENT, *_nodes()])
    command.add_argument("words", nargs=argparse.REMAINDER)
    arguments = parser.parse_args()
    try:
        _run(arguments)
    except (running.ClusterError, MissingProgram) as error:
        sys.exit(f"cluster: {error}")


def _nodes() -> list[str]:
    return [node.name for node in layout.NODES]


def _run(arguments: argparse.Namespace) -> None:
    if arguments.command == "kube-apiserver":
        print(provide_kube_apiserver())
    elif arguments.command == "packages":
        print(*missing_programs())
    elif arguments.command == "up":
        started = time.monotonic()

        def report(step: str) -> None:
            print(f"{time.monotonic() - started:6.1f} s  {step}", flush=True)

        running.start(report)
        report("ready: make cluster-exec ARGS='kubectl get pods -A'")
    elif arguments.command == "down":
        running.stop()
    elif arguments.command == "status":
        print(running.run("kubectl", "get", "nodes,pods", "-A", "-o", "wide"))
    else:
        words = running.enter(*arguments.words, network=arguments.network)
        os.execvpe(words[0], words, running.environment())


if __name__ == "__main__":
    main()
