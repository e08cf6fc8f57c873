"""The chart in the cluster, for the official conformance suite: see ``conformance/run.py``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from cluster import conftest, layout, running
from cluster.certificates import kubeconfig
from cluster.running import wait_until

USABLE = "172.31.0.250"
"""Address that Gateways may request."""


class ClusterInstallation:
    """The chart of the checkout in the running cluster, which starts if it does not run."""

    def __init__(self, directory: Path) -> None:
        """``directory`` gets the logs of the suite."""
        self.directory = directory
        self.kubeconfig = kubeconfig("admin")
        self.usable = USABLE

    def __enter__(self) -> ClusterInstallation:
        running.start(print)
        # An earlier run may still be ending.
        options = ("-l", "gateway-conformance", running.TIMEOUT)
        running.run("kubectl", "delete", "namespaces", *options)
        conftest.create_namespace()
        conftest.install(conftest.CHART)
        return self

    def __exit__(self, *_: object) -> None:
        """Leave the cluster as it is: ``make cluster-down`` ends it."""

    def enter(self, *words: str) -> list[str]:
        """Return a command of a client of the Gateways, outside of the cluster."""
        return running.enter(*words, network=layout.CLIENT)

    async def ready(self, name: str, controller: str) -> None:
        """Create the GatewayClass of the suite, and wait until the controller accepts it."""
        resource: dict[str, Any] = {
            "apiVersion": "gateway.networking.k8s.io/v1",
            "kind": "GatewayClass",
            "metadata": {"name": name},
            "spec": {"controllerName": controller},
        }
        # The controller of a class is immutable.
        running.run("kubectl", "delete", "gatewayclass", name, "--ignore-not-found")
        running.apply(json.dumps(resource))
        wait_until("the class is accepted", _features, name)


def _features(name: str) -> list[Any]:
    status = running.kubectl_json("get", "gatewayclass", name).get("status", {})
    return list(status.get("supportedFeatures", ()))
