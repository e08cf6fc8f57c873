"""A running cluster, with the chart installed from the checkout and the example served."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from typing import Any

import pytest

from cluster import example, layout, running, traffic
from cluster.binaries import MissingProgram, NotPermitted, RegistryUnreachable
from cluster.running import wait_until
from fakes.patience import FACTOR
from gatehouse import TIME_FACTOR_VARIABLE

NAMESPACE = "gatehouse-system"
CHART = str(layout.ROOT / "charts" / "gatehouse")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Write the table of steps: requests from outside of the cluster during each test."""
    if traffic.STEPS:
        terminalreporter.section("requests from outside of the cluster")
        terminalreporter.line("requests   lost  seconds  step")
    for step in traffic.STEPS:
        numbers = f"{step.answered + step.lost:8} {step.lost:6} {step.seconds:8.1f}"
        terminalreporter.line(f"{numbers}  {step.name}")


@pytest.fixture(scope="session")
def cluster() -> Iterator[None]:
    """Use the running cluster, or start one for this run.

    It is missing only where its sources cannot be downloaded, and where a machine may not run
    containers. Anything else is a failure.
    """
    if os.geteuid() != 0:
        pytest.fail("needs root", pytrace=False)
    started = running.pid() is None
    try:
        running.start(print)
    except RegistryUnreachable as error:
        pytest.skip(f"NO CLUSTER: the registry of Go modules is not reachable: {error}")
    except NotPermitted as error:
        pytest.skip(f"NO CLUSTER: {error}")
    except MissingProgram as error:
        pytest.fail(str(error), pytrace=False)
    yield
    if started:
        running.stop()


@pytest.fixture(scope="session")
def chart(cluster: None) -> str:
    """Install the chart, or upgrade an installation. Return its directory."""
    if shutil.which("helm", path=running.environment()["PATH"]) is None:
        pytest.fail("needs helm: make helm", pytrace=False)
    create_namespace()
    install(CHART)
    return CHART


def create_namespace() -> None:
    """Create the namespace of the installation, with a Secret that the chart copies."""
    running.apply(json.dumps(_manifest("Namespace", NAMESPACE)))
    credentials = {
        "type": "kubernetes.io/dockerconfigjson",
        "stringData": {".dockerconfigjson": "{}"},
    }
    running.apply(json.dumps({**_manifest("Secret", "registry", NAMESPACE), **credentials}))


def _manifest(kind: str, name: str, namespace: str = "") -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": kind, "metadata": {"name": name, "namespace": namespace}}


def install(chart: str, *settings: str) -> None:
    """Install a chart, or upgrade the release to it, with these values only."""
    always = (
        *("dataPlanes.copiedSecrets[0].use=pull", "dataPlanes.copiedSecrets[0].name=registry"),
        "controller.externalNames[0]=example.net",
    )
    options = [word for setting in (*always, *settings) for word in ("--set", setting)]
    variable = "controller.extraEnv[0]"
    options += ("--set", f"{variable}.name={TIME_FACTOR_VARIABLE}")
    options += ("--set-string", f"{variable}.value={FACTOR:g}")
    helm("upgrade", "--install", "--reset-values", "gatehouse", chart, *options)


@pytest.fixture(scope="session")
def urls(chart: str) -> tuple[str, ...]:
    """URLs of the example's route at a Gateway of each class, with two instances each."""
    return example.start()


def helm(command: str, *words: str) -> str:
    """Run helm for the release's namespace, and wait for its objects."""
    options = ("-n", NAMESPACE, "--wait", running.TIMEOUT)
    return running.run("helm", command, *words, *options)


def leader() -> str:
    """Return the name of the Pod with the leader's label, or "" unless there is exactly one."""
    selector = ("-l", "gatehouse.dev/leader=true", "--field-selector=status.phase=Running")
    items = running.kubectl_json("-n", NAMESPACE, "get", "pods", *selector)["items"]
    alive = [item for item in items if "deletionTimestamp" not in item["metadata"]]
    return str(alive[0]["metadata"]["name"]) if len(alive) == 1 else ""


def restart_leader() -> None:
    """Delete the Pod that leads, so that agents connect again: to another controller."""
    before = leader()
    running.run("kubectl", "-n", NAMESPACE, "delete", "pod", before, running.TIMEOUT)
    wait_until("another controller leads", lambda: leader() not in ("", before))
