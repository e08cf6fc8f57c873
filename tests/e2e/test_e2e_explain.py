"""`gatehouse explain --send`: the explanation of each fault agrees with both proxies."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from fakes import request_causes
from fakes.authority import Authority
from fakes.installation import BACKEND, Installation, apply, holds
from fakes.patience import until
from fakes.request_causes import CASES
from gatehouse.apis import resources
from gatehouse.cli.explain import explain
from gatehouse.cli.status import status
from gatehouse.kube import client as kube

pytestmark = [pytest.mark.process, pytest.mark.long, pytest.mark.timeout(600)]


@pytest.fixture(scope="module", params=["gatehouse-nginx", "gatehouse-envoy"])
def gateway_class(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
async def estate(client: kube.Client, backends: None, gateway_class: str, tmp_path: Path) -> None:
    """Apply the objects of all cases."""
    files = zip(("tls.crt", "tls.key"), Authority(tmp_path).issue("tls.example"), strict=True)
    data = {name: base64.b64encode(path.read_bytes()).decode() for name, path in files}
    secret = {
        "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls",
        "metadata": request_causes.metadata("tls"), "data": data,
    }  # fmt: skip
    namespace: dict[str, Any] = {"kind": "Namespace", "metadata": {"name": "other"}}
    with contextlib.suppress(kube.AlreadyExists):
        await client.create(resources.NAMESPACES, namespace)
    objects = request_causes.base(gateway_class, BACKEND, secret)
    await apply(client, [*objects, *request_causes.case_objects()])
    await holds(client, "Gateway", "web", "Programmed")
    await holds(client, "HTTPRoute", "fine", "Accepted")


async def run(installation: Installation, *words: str) -> Result:
    kubeconfig = ("--kubeconfig", str(installation.kubeconfig))
    return await asyncio.to_thread(CliRunner().invoke, explain, [*words, *kubeconfig])


async def test_explanation_agrees_with_the_proxy(
    installation: Installation, gateway_class: str, estate: None
) -> None:
    wrong: list[str] = []
    for case in CASES:

        async def agrees(
            arguments: tuple[str, ...] = (*case.arguments, "--send"),
            cause: str = case.cause_at(gateway_class),
        ) -> bool:
            result = await run(installation, *arguments)
            wrong[:] = [*wrong[:-1], result.output] if wrong else [result.output]
            first = result.output.partition("\n")[0]
            return cause in first and result.exit_code in (0, 3)

        wrong.append("")
        try:
            await until(agrees)
        except TimeoutError:
            wrong[-1] = f"{case.name}: {wrong[-1]}"
        else:
            wrong.pop()
    assert not wrong, "\n".join(wrong)
    url = f"http://fine.example:{request_causes.HTTP_PORT}/"
    document = json.loads((await run(installation, url, "--send", "-o", "json")).stdout)
    (plane,) = document["dataPlanes"]
    assert plane["ready"]
    # An Envoy's agent has no metric of the confirmed version.
    assert plane["confirmedVersion"]
    assert document["sent"] == {"agrees": True, "status": 200, "text": "200, as expected"}


async def test_status_names_every_problem(installation: Installation, estate: None) -> None:
    words = ["--kubeconfig", str(installation.kubeconfig), "--problems"]
    result = await asyncio.to_thread(CliRunner().invoke, status, words)
    assert "Service default/idle: 0 of 0 endpoints ready" in result.output
    assert "HTTPRoute default/gone at web: ResolvedRefs is False" in result.output
    assert "HTTPRoute default/orphan: parentRefs[0]: Gateway default/wbe not found" in result.output
    assert result.exit_code == 3
