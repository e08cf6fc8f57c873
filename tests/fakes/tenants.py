"""Users with rights in one namespace only."""

from __future__ import annotations

import contextlib
import json
import ssl
from collections.abc import AsyncIterator
from typing import Any

import aiohttp

from fakes.installation import Installation
from gatehouse.apis.resources import SERVICE_ACCOUNTS
from gatehouse.kube import client as kube
from kube_base.types.resource import Resource

ROLE_BINDINGS = Resource("rbac.authorization.k8s.io", "v1", "rolebindings", "RoleBinding")

JSON = "application/json"
MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
JSON_PATCH = "application/json-patch+json"
APPLY = "application/apply-patch+yaml"


class Tenant:
    """A user with one ClusterRole in one namespace, and nothing else."""

    def __init__(
        self, role: str, session: aiohttp.ClientSession, server: str, tls: ssl.SSLContext
    ) -> None:
        self.role = role
        self._session, self._server, self._tls = session, server, tls

    async def send(
        self, method: str, path: str, body: Any = None, content_type: str = JSON
    ) -> tuple[int, str]:
        """Send a request; return the status and the body."""
        async with self._session.request(
            method,
            self._server + path,
            data=json.dumps(body),
            headers={"Content-Type": content_type},
            ssl=self._tls,
        ) as response:
            return response.status, await response.text()


@contextlib.asynccontextmanager
async def tenant_with(
    role: str, namespace: str, installation: Installation, client: kube.Client
) -> AsyncIterator[Tenant]:
    """Yield a tenant whose ServiceAccount has a ClusterRole in a namespace."""
    name = f"dev-{role}"
    binding = {
        "metadata": {"name": name, "namespace": namespace},
        "roleRef": {"apiGroup": ROLE_BINDINGS.group, "kind": "ClusterRole", "name": role},
        "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": namespace}],
    }
    account = {"metadata": {"name": name, "namespace": namespace}}
    for resource, obj in ((SERVICE_ACCOUNTS, account), (ROLE_BINDINGS, binding)):
        with contextlib.suppress(kube.AlreadyExists):
            await client.create(resource, obj)
    token, _ = await client.create_token(namespace, name, [], 3600, "", "")
    tls = ssl.create_default_context(cafile=str(installation.state / "pki" / "ca.crt"))
    headers = {"Authorization": f"Bearer {token}"}
    async with aiohttp.ClientSession(headers=headers) as session:
        yield Tenant(role, session, client.server, tls)
