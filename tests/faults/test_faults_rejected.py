"""Roll-out, scale-up and controller restarts of a data plane while its proxy rejects an object.

Pods run in network namespaces, and clients ask through the Service's address. Requests of other
routes must not fail.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any

import msgspec
import pytest

from fakes.builds import Build, build
from fakes.cluster import NAMESPACE, Cluster
from fakes.cluster_estate import (
    CLUSTER_MARKS,
    CONTROLLERS,
    PLANES,
    add_route,
    delete_controllers,
    reachable,
    running_cluster,
    until_answered,
    until_ready,
)
from fakes.installation import PORT, address, apply, condition, route
from fakes.keepalive_load import Load
from fakes.patience import until
from fakes.rejected_objects import WEAK, filtering, secret
from gatehouse.kube import client as kube
from gatehouse.standalone import echo

pytestmark = [*CLUSTER_MARKS, pytest.mark.long]

VERSION = "0.1.0"
BAD = "bad"
"""Name of the rejected object, and of the route or listener that uses it."""


class Case(msgspec.Struct, frozen=True):
    """An object that a proxy rejects."""

    gateway_class: str
    objects: Callable[[str], list[dict[str, Any]]]
    """Returns the object and what uses it. The argument is another one for each edit."""
    parameters: tuple[str, str]
    """API version and kind of the Gateway's parameters."""
    failing: str = ""
    """Path that is answered with 500; empty if there is none."""


def _snippet(value: str) -> Callable[[str], list[dict[str, Any]]]:
    return lambda edit: filtering(BAD, f"# {edit}\n{value}")


NGINX = ("gateway.nginx.org/v1alpha2", "NginxProxy")
ENVOY = ("gatehouse.dev/v1alpha1", "GatewayParameters")

CASES = {
    "nginx, named": Case("gatehouse-nginx", _snippet("no_such_directive on;"), NGINX, f"/{BAD}"),
    # NGINX does not name the file of this error.
    "nginx, unnamed": Case(
        "gatehouse-nginx", _snippet("access_log /no/such/directory/log;"), NGINX, f"/{BAD}"
    ),
    # Each edit has another key.
    "envoy, named": Case("gatehouse-envoy", lambda _: [secret(BAD, WEAK)], ENVOY),
}


@pytest.fixture(scope="module")
def builds(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Build]:
    return {VERSION: build(VERSION, tmp_path_factory.mktemp("builds") / VERSION)}


@pytest.fixture
async def cluster(builds: dict[str, Build]) -> AsyncIterator[Cluster]:
    async with running_cluster(builds) as result:
        yield result


class Estate:
    """A Gateway under load, with a rejected object."""

    def __init__(self, client: kube.Client, case: Case) -> None:
        self.client, self._case = client, case
        self.where = ""

    async def start(self, cluster: Cluster) -> None:
        """Create the Gateway with one data plane, and wait until it answers."""
        version, kind = self._case.parameters
        reference = {"group": version.partition("/")[0], "kind": kind, "name": "scale"}
        manifests = reachable(cluster, self._case.gateway_class)
        (gateway,) = (manifest for manifest in manifests if manifest["kind"] == "Gateway")
        gateway["spec"]["infrastructure"] = {"parametersRef": reference}
        gateway["spec"]["listeners"].append(
            {
                "name": BAD,
                "hostname": f"{BAD}.example",
                "port": 8443,
                "protocol": "HTTPS",
                "tls": {"certificateRefs": [{"name": BAD}]},
            }
        )
        await apply(self.client, manifests)
        await self.scale(1)
        self.where = await address(self.client)
        await until_answered(self.where, "/")

    async def scale(self, replicas: int, memory: str = "32Mi") -> None:
        """Apply parameters. Another ``memory`` is another template: all Pods are replaced."""
        version, kind = self._case.parameters
        container = {"resources": {"requests": {"memory": memory}}}
        deployment = {"replicas": replicas, "container": container}
        parameters = {
            "apiVersion": version,
            "kind": kind,
            "metadata": {"name": "scale", "namespace": "default"},
            "spec": {"kubernetes": {"deployment": deployment}},
        }
        await apply(self.client, [parameters])

    async def reject(self, edit: str) -> None:
        """Create or edit the object that the proxy rejects."""
        await apply(self.client, self._case.objects(edit))

    async def is_left_out(self) -> None:
        """Wait until the Gateway names the rejected object, and every data plane fails it."""

        async def left_out() -> bool:
            result = await condition(self.client, "Gateway", "web", "Programmed")
            return result is not None and f"default/{BAD}" in result["message"]

        await until(left_out)
        if self._case.failing:
            await until_answered(self.where, self._case.failing, 500)

    async def changes(self, path: str) -> None:
        """Add a route. It must answer again and again, whichever Pod gets the request."""
        await add_route(self.client, self.where, path)

    async def planes_are(self, count: int, *, besides: set[str]) -> set[str]:
        """Wait until exactly ``count`` data planes are ready and none is among ``besides``."""
        return await until_ready(self.client, "default", PLANES, count, besides=besides)

    async def controllers_replace(self, before: set[str]) -> None:
        """Wait until the Pods of the controller are others."""
        await until_ready(self.client, NAMESPACE, CONTROLLERS, len(before), besides=before)


@contextlib.asynccontextmanager
async def estate(cluster: Cluster, case: Case) -> AsyncIterator[Estate]:
    """Run a Gateway. Under load, which starts with the body, no request may fail."""
    async with (
        kube.Client.from_kubeconfig(cluster.server.kubeconfig) as client,
        echo.serve_echo({(cluster.gateway, 9080): "app"}),
    ):
        await cluster.install(client, VERSION, "--snippets")
        result = Estate(client, case)
        await result.start(cluster)
        load = Load(result.where, PORT)
        async with load.running():
            yield result
        print(dict(load.answered), dict(load.failed), load.refused_unprocessed)
        assert not load.failed
        assert min(load.answered[kind] for kind in ("new", "kept", "h2")) > 100


@pytest.mark.parametrize("case", CASES)
async def test_no_request_fails_beside_a_rejected_object(cluster: Cluster, case: str) -> None:
    async with estate(cluster, CASES[case]) as gateway:
        await gateway.reject("first")
        await gateway.is_left_out()
        await gateway.changes("/after-rejection")
        await gateway.scale(3)
        pods = await gateway.planes_are(3, besides=set())
        await gateway.changes("/after-scale-up")
        await gateway.controllers_replace(await delete_controllers(gateway.client))
        await gateway.scale(3, "48Mi")
        await gateway.planes_are(3, besides=pods)
        await gateway.changes("/after-roll-out")
        await gateway.is_left_out()


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("edited", [False, True], ids=["as it was", "edited meanwhile"])
async def test_new_instance_after_a_controller_restart_serves_the_newest_good_objects(
    cluster: Cluster, case: str, edited: bool
) -> None:
    """The first version of the new controller meets an old and a new instance, in any order."""
    async with estate(cluster, CASES[case]) as gateway:
        await gateway.reject("first")
        await gateway.is_left_out()
        before = await delete_controllers(gateway.client)
        if edited:
            await gateway.reject("second")
        await gateway.scale(2)
        await apply(gateway.client, [route("meanwhile", "/meanwhile")])
        await gateway.planes_are(2, besides=set())
        # Both instances answer: the new one has what was added before it started.
        await until_answered(gateway.where, "/meanwhile")
        await gateway.controllers_replace(before)
        await gateway.changes("/later")
        await gateway.is_left_out()
