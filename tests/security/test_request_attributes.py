"""Request attributes: clients spell paths and queries so that RBAC decides about something else.

The API server must give its authorizer the attributes that Kubernetes derives from a request, for
every verb and path. The table has results of Kubernetes' own code. `tests/apiserver` compares them
with what is served.
"""

from __future__ import annotations

import asyncio
import json
import ssl
from pathlib import Path
from typing import Any

import pytest

from fakes.inprocess import Server
from gatehouse.standalone.state_directory import State
from kube_api_server.http.nonresource import NonResourceHandlers
from kube_api_server.rbac.authorizer import Authorizer
from kube_api_server.rbac.rules import Attributes

TABLE_FILE = "compiler/frontends/upstream_cluster/request_infos.json"
TABLE: list[dict[str, Any]] = json.loads(
    (Path(__file__).parents[1] / TABLE_FILE).read_text(encoding="utf-8")
)["requests"]

REJECTED = {400}
"""Statuses of requests that the server rejects before it authorizes them."""


def expected(row: dict[str, Any]) -> Attributes:
    """Return the attributes by which Kubernetes authorizes a request."""
    if not row.get("is_resource"):
        return Attributes(row["verb"], path=row["path"])
    fields = ("group", "resource", "subresource", "namespace", "name")
    return Attributes(row["verb"], *(row.get(field, "") for field in fields))


class Client:
    """Connections that send request targets unchanged."""

    def __init__(self, server: Server) -> None:
        self._port = server.port
        self._context = ssl.create_default_context(cafile=str(server.state.pki.ca().cert))

    async def status(self, method: str, target: str) -> int:
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", self._port, ssl=self._context, server_hostname="127.0.0.1"
        )
        head = f"{method} {target} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n"
        head += "Authorization: Bearer token\r\nContent-Length: 0\r\n\r\n"
        writer.write(head.encode())
        line = await reader.readline()
        writer.close()
        return int(line.split()[1])


async def test_authorizer_gets_the_attributes_of_kubernetes_for_the_whole_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    requests: list[Attributes] = []

    def refuse(self: Authorizer, user: Any, requested: Attributes) -> tuple[bool, str]:
        if user.name == "stranger":
            requests.append(requested)
        return False, ""

    tokens = tmp_path / "tokens.csv"
    tokens.write_text("token,stranger,1,strangers\n")
    server = Server(State(tmp_path / "s"), token_file=tokens)
    compared, differences = 0, []
    async with server.running():
        monkeypatch.setattr(Authorizer, "authorize", refuse)
        client = Client(server)
        for row in TABLE:
            requests.clear()
            method, target = row["method"], row["target"]
            status = await client.status(method, target)
            if row.get("error") or status in REJECTED:
                assert (method, target, status, requests) == (method, target, 400, [])
                continue
            if NonResourceHandlers.is_open(row["path"]):
                assert (status, requests) == (200, [])
                continue
            compared += 1
            if (status, requests) != (403, [expected(row)]):
                differences.append((method, target, status, list(requests), expected(row)))
    assert differences == []
    assert compared > 230
