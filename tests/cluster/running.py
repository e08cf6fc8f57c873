"""Start, use and stop the cluster from outside of its namespaces."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from cluster import binaries, certificates, images, layout, networks, nodes, previous
from cluster.binaries import NotPermitted
from fakes import patience
from fakes.kinds import gateway_api_definitions

T = TypeVar("T")

NAMESPACES = "this machine permits no namespaces"
CONTROL_GROUPS = "this machine permits no control groups"

TAG = "0.1.0"
"""Tag of Gatehouse's images: the appVersion of the chart."""

UNSHARE = ("unshare", "--mount", "--net", "--pid", "--ipc", "--uts", "--fork", "--mount-proc")
PID_FILE = layout.RUN / "machine.pid"
SECONDS = 3 * patience.SECONDS
"""Limit of waiting and of a command. Nodes and rollouts take longer than one process."""
TIMEOUT = f"--timeout={SECONDS - 10:.0f}s"
"""Before the end of the command, so that kubectl tells what it waits for."""


class ClusterError(RuntimeError):
    """Raised if the cluster does not run, or a command in it fails."""


def pid() -> int | None:
    """Return the process ID of the cluster's first process, or None if there is none."""
    with contextlib.suppress(OSError, ValueError):
        result = int(PID_FILE.read_text())
        if "cluster.machine" in Path(f"/proc/{result}/cmdline").read_text():
            return result
    return None


def enter(*words: str, network: str = "") -> list[str]:
    """Return a command that runs in the cluster: in the network of a node, a client, or ""."""
    process = pid()
    if process is None:
        raise ClusterError("the cluster does not run: make cluster")
    namespaces = ["nsenter", "-t", str(process), "-m", "-n", "-u", "-i", f"--wd={Path.cwd()}"]
    return [*namespaces, "--", *networks.enter(network, *words)]


def environment() -> dict[str, str]:
    """Return the environment of commands: kubectl and helm are administrators."""
    path = f"{layout.BINARIES}:{layout.ROOT / '.cache' / 'helm'}:{os.environ['PATH']}"
    kubeconfig = str(certificates.kubeconfig("admin"))
    return {**os.environ, **_python_path(), "KUBECONFIG": kubeconfig, "PATH": path}


def _python_path() -> dict[str, str]:
    paths = (str(layout.ROOT / "tests"), os.environ.get("PYTHONPATH", ""))
    return {"PYTHONPATH": os.pathsep.join(filter(None, paths))}


def run(*words: str, network: str = "", text: str | None = None) -> str:
    """Run a command in the cluster. Return its output. Raises ClusterError with its errors."""
    done = subprocess.run(
        enter(*words, network=network),
        input=text,
        capture_output=True,
        text=True,
        env=environment(),
        timeout=SECONDS,
        check=False,
    )
    if done.returncode:
        raise ClusterError(f"{' '.join(words)}: {done.stderr}{done.stdout[-2000:]}")
    return done.stdout


def kubectl_json(*words: str) -> Any:
    """Run kubectl. Return the objects that it prints."""
    return json.loads(run("kubectl", *words, "-o", "json"))


def apply(manifests: str) -> None:
    """Apply a YAML or JSON text with server-side apply."""
    run("kubectl", "apply", "--server-side", "--force-conflicts", "-f", "-", text=manifests)


def wait_until(what: str, function: Callable[..., T], *arguments: Any) -> T:
    """Call a function until its result is true. Return it. Raises ClusterError with ``what``."""
    deadline = time.monotonic() + SECONDS
    error: Exception | None = None
    while time.monotonic() < deadline:
        try:
            result = function(*arguments)
            if result:
                return result
            error = None
        except (ClusterError, ValueError, KeyError) as problem:
            error = problem
        time.sleep(0.3)
    raise ClusterError(f"not within {SECONDS:.0f} s: {what}{f': {error}' if error else ''}")


def require_permissions() -> None:
    """Raise NotPermitted if this machine may not run nodes."""
    words = (*UNSHARE, "sh", "-c", "mount --make-rprivate / && mount -t tmpfs tmpfs /run")
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        raise NotPermitted(f"{done.stderr.strip()}: {NAMESPACES}")
    if not os.access(nodes.CGROUPS, os.W_OK):
        raise NotPermitted(f"{nodes.CGROUPS}: {CONTROL_GROUPS}")


def start(report: Callable[[str], None]) -> None:
    """Start a new cluster, and wait until Pods run in it. ``report`` gets each step."""
    if pid() is not None:
        report("the cluster runs already")
        return
    report("programs")
    binaries.prepare()
    require_permissions()
    report("images")
    archive = images.build({TAG: layout.ROOT, **previous.sources()})
    stop()
    layout.RUN.mkdir(parents=True)
    certificates.write()
    report("control plane and nodes")
    _start_machine()
    wait_until("kube-apiserver is ready", run, "kubectl", "get", "--raw", "/readyz")
    for node in layout.NODES:
        wait_until(f"containerd of {node.name} runs", _containerd_runs, node)
    images.load(archive, enter)
    wait_until("all nodes are ready", _nodes_are_ready)
    report("DNS and Gateway API")
    apply((Path(__file__).parent / "dns.yaml").read_text())
    for definition in gateway_api_definitions():
        apply(json.dumps(definition))
    run("kubectl", "-n", "kube-system", "rollout", "status", "deployment/coredns", TIMEOUT)


_started: list[subprocess.Popen[bytes]] = []
"""Processes that began a cluster. Python warns of a running process whose object is dropped."""


def _start_machine() -> None:
    layout.LOGS.mkdir()
    with (layout.LOGS / "machine.log").open("ab") as log:
        outer = subprocess.Popen(
            [*UNSHARE, "--kill-child", "--", sys.executable, "-m", "cluster.machine"],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            env=environment(),
        )
    _started.append(outer)
    children = Path(f"/proc/{outer.pid}/task/{outer.pid}/children")
    while not (own := children.read_text().split()):
        if outer.poll() is not None:
            raise ClusterError((layout.LOGS / "machine.log").read_text())
        time.sleep(0.02)
    PID_FILE.write_text(own[0])


def _containerd_runs(node: layout.Node) -> bool:
    return bool(run("ctr", "-a", nodes.socket(node), "version"))


def _nodes_are_ready() -> bool:
    items = kubectl_json("get", "nodes")["items"]
    ready = [_condition(item["status"], "Ready") for item in items]
    return ready == ["True"] * len(layout.NODES)


def _condition(status: Mapping[str, Any], name: str) -> str:
    return next((c["status"] for c in status.get("conditions", ()) if c["type"] == name), "")


def stop() -> None:
    """End the cluster and remove its state. Programs, images and build products stay."""
    process = pid()
    if process is not None:
        os.kill(process, signal.SIGKILL)
        wait_until("the cluster has ended", lambda: pid() is None)
    while _started:
        _started.pop().wait(SECONDS)
    wait_until("no process of the cluster is left", _removed_cgroups)
    shutil.rmtree(layout.RUN, ignore_errors=True)


def _removed_cgroups() -> bool:
    try:
        nodes.remove_cgroups()
    except OSError:
        return False
    return True
