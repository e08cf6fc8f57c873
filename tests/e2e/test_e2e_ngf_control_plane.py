"""Gatehouse's agent under the control plane of NGINX Gateway Fabric: objects in, traffic out."""

from __future__ import annotations

import base64
import contextlib
import ssl
import tempfile
from collections.abc import AsyncIterator, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from fakes import ngf_control_plane
from fakes.agent_control_plane import write_certificate
from fakes.inprocess import Server
from fakes.installation import BAD_SNIPPETS_FILTER, PORT, apply, condition, hello, route
from fakes.kinds import resource_of
from fakes.machines import Machine
from fakes.ngf_control_plane import NGFControlPlane, NGFDataPlane
from fakes.patience import until
from fakes.peer_differences import NGF_MAIN_FILE
from gatehouse.apis import resources
from gatehouse.kube import client as kube
from gatehouse.standalone.state_directory import State

pytestmark = [pytest.mark.process, pytest.mark.long, pytest.mark.peers]


@pytest.fixture
def machine() -> Iterator[Machine]:
    """A network of its own, since all ports of the control plane are fixed."""
    ngf_control_plane.require()
    machine = Machine("ngf")
    try:
        with machine.entered():
            yield machine
    finally:
        machine.close()


class NGFWorld:
    """A Gateway of class ``nginx`` with Gatehouse's agent as its data plane."""

    def __init__(
        self, client: kube.Client, plane: NGFDataPlane, control_plane: NGFControlPlane
    ) -> None:
        self.client = client
        self.plane = plane
        self.control_plane = control_plane

    async def get(self, path: str, **headers: str) -> tuple[int, str]:
        """Return status and marker of a response. Status 0: no connection."""
        url = f"http://127.0.0.1:{PORT}{path}"
        with contextlib.suppress(aiohttp.ClientError):
            async with (
                aiohttp.ClientSession() as session,
                session.get(url, headers={"Host": "hello.example.com", **headers}) as response,
            ):
                return response.status, response.headers.get("X-Route", "")
        return 0, ""

    async def add(self, name: str, **rule: Any) -> None:
        """Create a route of the path ``/<name>`` that marks its responses."""
        marked = {"set": [{"name": "X-Route", "value": name}]}
        filters = [{"type": "ResponseHeaderModifier", "responseHeaderModifier": marked}]
        filters += rule.pop("filters", [])
        manifest = route(name, f"/{name}", filters=filters, **rule)
        await self.client.create(resources.HTTP_ROUTES, manifest)

    async def answers(self, path: str, marker: str, **headers: str) -> bool:
        """Return whether a response is a success with this marker."""
        return await self.get(path, **headers) == (200, marker)

    async def programmed(self) -> bool:
        """Return whether the Gateway is Programmed."""
        result = await condition(self.client, "Gateway", "web", "Programmed")
        return bool(result and result["status"] == "True")

    async def not_programmed(self) -> str:
        """Return why the Gateway is not Programmed; empty if it is."""
        result = await condition(self.client, "Gateway", "web", "Programmed")
        return result["message"] if result and result["status"] == "False" else ""


@pytest.fixture
async def ngf(machine: Machine, backends: None) -> AsyncIterator[NGFWorld]:
    with tempfile.TemporaryDirectory(prefix="gh-") as name:
        directory = Path(name)
        source = ngf_control_plane.unpack_source(directory / "source")
        server = Server(State(directory / "state"))
        async with server.running(), server.client() as client:
            control_plane = NGFControlPlane(directory, source, server.state.kubeconfig)
            await control_plane.install(client)
            async with control_plane.running():
                await apply(client, ready(hello("nginx")))
                plane = NGFDataPlane(directory / "plane", source)
                await plane.configure(client, "web")
                yield NGFWorld(client, plane, control_plane)


def ready(manifests: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Mark endpoints as ready. NGINX Gateway Fabric does not use endpoints without conditions."""
    for manifest in manifests:
        for endpoint in manifest.get("endpoints", ()):
            endpoint["conditions"] = {"ready": True}
    return manifests


def remove_lines(file: Path, lines: tuple[str, ...]) -> None:
    text = file.read_text()
    for line in lines:
        assert line in text
        text = text.replace(line, "")
    file.write_text(text)


async def test_routes_are_served_by_ngf_and_rejections_have_nginx_message(ngf: NGFWorld) -> None:
    remove_lines(ngf.plane.etc_nginx / "nginx.conf", NGF_MAIN_FILE.values)
    async with ngf.plane.running():
        await until(partial(ngf.answers, "/", ""))
        for name in (f"r{number}" for number in range(5)):
            await ngf.add(name)
            await until(partial(ngf.answers, f"/{name}", name))
        # njs of the image selects rules by header.
        match = {"path": {"value": "/"}, "headers": [{"name": "x-version", "value": "two"}]}
        await ngf.add("by-header", matches=[match])
        await until(partial(ngf.answers, "/", "by-header", **{"X-Version": "two"}))
        assert await ngf.get("/") == (200, "")
        await until(ngf.programmed)
        assert ngf.control_plane.errors() == []
        await ngf.client.create(resource_of("SnippetsFilter"), BAD_SNIPPETS_FILTER)
        reference = {"group": "gateway.nginx.org", "kind": "SnippetsFilter", "name": "bad"}
        await ngf.add("bad", filters=[{"type": "ExtensionRef", "extensionRef": reference}])
        assert 'unknown directive "not_a_directive"' in await until(ngf.not_programmed)
        assert await ngf.answers("/r4", "r4")
        await ngf.client.delete(resources.HTTP_ROUTES, "bad", "default")
        await until(ngf.programmed)
    # A new agent serves the stored configuration, and later changes.
    async with ngf.plane.running():
        await until(partial(ngf.answers, "/r4", "r4"))
        await ngf.client.delete(resources.HTTP_ROUTES, "r4", "default")
        await until(partial(ngf.answers, "/r4", ""))
        await ngf.add("later")
        await until(partial(ngf.answers, "/later", "later"))


async def test_tls_listener_of_ngf_is_served_with_its_certificate(ngf: NGFWorld) -> None:
    remove_lines(ngf.plane.etc_nginx / "nginx.conf", NGF_MAIN_FILE.values)
    certificate, key = write_certificate(ngf.plane.etc_nginx.parents[1])
    data = {"tls.crt": certificate.read_bytes(), "tls.key": key.read_bytes()}
    encoded = {name: base64.b64encode(value).decode() for name, value in data.items()}
    names = {"name": "cert", "namespace": "default"}
    secret = {"metadata": names, "type": "kubernetes.io/tls", "data": encoded}
    await ngf.client.create(resources.SECRETS, secret)
    listener = {
        "name": "https",
        "port": 8444,
        "protocol": "HTTPS",
        "tls": {"certificateRefs": [{"name": "cert"}]},
    }
    listeners = [*hello()[0]["spec"]["listeners"], listener]
    await ngf.client.patch(resources.GATEWAYS, "web", {"spec": {"listeners": listeners}}, "default")
    trust = ssl.create_default_context(cafile=str(certificate))

    async def served_by_tls() -> bool:
        with contextlib.suppress(aiohttp.ClientError):
            async with (
                aiohttp.ClientSession() as session,
                session.get(
                    "https://127.0.0.1:8444/", ssl=trust, server_hostname="control.plane"
                ) as response,
            ):
                return response.status == 200
        return False

    async with ngf.plane.running():
        await until(served_by_tls)


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (None, "/etc/nginx/nginx.conf: the control plane needs it, but the data plane lacks it"),
        (NGF_MAIN_FILE.values[:1], 'unknown directive "stub_status"'),
        (
            (*NGF_MAIN_FILE.values, "include /etc/nginx/conf.d/*.conf;"),
            "/etc/nginx/conf.d/http.conf: not read by NGINX",
        ),
    ],
    ids=["no-main-file", "module-missing", "main-file-without-include"],
)
async def test_files_that_nginx_does_not_read_are_never_confirmed(
    ngf: NGFWorld, lines: tuple[str, ...] | None, message: str
) -> None:
    main = ngf.plane.etc_nginx / "nginx.conf"
    if lines is None:
        main.unlink()
    else:
        remove_lines(main, lines)
    async with ngf.plane.running():
        assert message in await until(ngf.not_programmed)
        assert await ngf.get("/") == (0, "")
