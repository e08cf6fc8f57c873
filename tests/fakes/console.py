"""Objects of a console, and sessions of its users."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any, Protocol

import aiohttp
import yaml

from fakes.chromium import Page
from fakes.inprocess import Server
from fakes.installation import apply
from fakes.tenants import ROLE_BINDINGS
from gatehouse.apis import resources
from gatehouse.console.object_feed import ReadScope
from gatehouse.console.server import RunningConsole, serve_console
from gatehouse.kube import client as kube
from gatehouse.kube.config import Configuration
from gatehouse.kube.credentials import StaticToken
from kube_base.types.resource import Resource

Object = dict[str, Any]


class ConsoleLink(Protocol):
    """The part of a console that a browser needs."""

    @property
    def port(self) -> int: ...
    @property
    def login_link(self) -> str: ...


_ROLES = Resource("rbac.authorization.k8s.io", "v1", "roles", "Role")

HOSTILE = '<img src=x onerror="window.hacked=1">\u202e'
"""A message that must stay text."""

_ESTATE = """
apiVersion: v1
kind: Namespace
metadata: {name: %(name)s}
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: web, namespace: %(name)s}
spec:
  gatewayClassName: gatehouse-nginx
  listeners: [{name: http, port: 80, protocol: HTTP}]
---
apiVersion: v1
kind: Service
metadata: {name: app, namespace: %(name)s}
spec: {ports: [{port: 80}]}
---
apiVersion: v1
kind: Secret
metadata: {name: secret, namespace: %(name)s}
stringData: {password: hidden-%(name)s}
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: app, namespace: %(name)s}
spec:
  parentRefs: [{name: web}]
  hostnames: [%(name)s.example]
  rules: [{backendRefs: [{name: app, port: 80}]}]
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: lost, namespace: %(name)s}
spec:
  parentRefs: [{name: nowhere}]
  rules: [{backendRefs: [{name: app, port: 80}]}]
"""


def estate(namespace: str) -> list[Object]:
    """Return a Gateway with a route, a route without Gateway, a Service and a Secret."""
    return list(yaml.safe_load_all(_ESTATE % {"name": namespace}))


_CLASS = {
    "apiVersion": "gateway.networking.k8s.io/v1", "kind": "GatewayClass",
    "metadata": {"name": "gatehouse-nginx", "namespace": ""},
    "spec": {"controllerName": "gatehouse.dev/nginx"},
}  # fmt: skip


async def apply_estates(client: kube.Client, *namespaces: str) -> None:
    """Create a class, and namespaces with their objects."""
    await apply(client, [_CLASS])
    for namespace in namespaces:
        for manifest in estate(namespace):
            manifest["metadata"].setdefault("namespace", "")
            await apply(client, [manifest])


def configuration_of(server: Server, token: str) -> Configuration:
    """Return the configuration of a user with a token."""
    return Configuration(
        f"https://127.0.0.1:{server.port}",
        StaticToken(token),
        ca=server.state.pki.ca().cert.read_bytes(),
    )


async def reader_of(server: Server, namespace: str, role: str = "view") -> kube.Client:
    """Return a client of a ServiceAccount that may read one namespace; role: empty for none."""
    async with server.client() as admin:
        account = {"metadata": {"name": "reader", "namespace": namespace}}
        await admin.create(resources.SERVICE_ACCOUNTS, account)
        if role:
            rules = [{"apiGroups": ["", "gateway.networking.k8s.io", "discovery.k8s.io"],
                      "resources": ["*"], "verbs": ["get", "list", "watch"]}]  # fmt: skip
            name = {"name": "reader", "namespace": namespace}
            await admin.create(_ROLES, {"metadata": name, "rules": rules})
            subject = {"kind": "ServiceAccount", **name}
            reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "reader"}
            binding = {"metadata": name, "subjects": [subject], "roleRef": reference}
            await admin.create(ROLE_BINDINGS, binding)
        token, _ = await admin.create_token(namespace, "reader", ())
    return kube.Client(configuration_of(server, token))


@contextlib.asynccontextmanager
async def running_console(
    client: kube.Client, *namespaces: str, fallback: str = "default"
) -> AsyncIterator[RunningConsole]:
    """Serve a console for the user of a client."""
    async with serve_console(client, ReadScope(namespaces, fallback)) as console:
        yield console


@contextlib.asynccontextmanager
async def logged_in(console: ConsoleLink) -> AsyncIterator[aiohttp.ClientSession]:
    """Yield a session that used the login link."""
    # A jar ignores cookies of IP addresses unless it is unsafe.
    jar = aiohttp.CookieJar(unsafe=True)
    async with aiohttp.ClientSession(f"http://127.0.0.1:{console.port}", cookie_jar=jar) as session:
        async with session.get(
            console.login_link.removeprefix(f"http://127.0.0.1:{console.port}")
        ) as page:
            assert page.status == 200
        yield session


async def read(session: aiohttp.ClientSession, path: str, **query: str) -> Any:
    """Return the JSON of a path of the API."""
    async with session.get(f"/console/api/v1/{path}", params=query) as response:
        assert response.status == 200, await response.text()
        return await response.json()


async def log_in(page: Page, console: ConsoleLink) -> None:
    """Log a browser in, and wait for the first objects."""
    await page.call("Page.navigate", url=console.login_link)
    await page.until("document.getElementById('connection')?.textContent === 'live'")


async def show(page: Page, view: str) -> None:
    """Open a view. ``view``: fragment of its address."""
    await page.evaluate(f"location.hash = {json.dumps(view)}")
    await page.until(f"document.title.startsWith({json.dumps(view.partition('?')[0])})")
