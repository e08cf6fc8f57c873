"""A controller generates for an unedited object what Envoy rejects, as after an upgrade.

The Envoy serves all the time. Requests of other routes must not fail.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest

from fakes.builds import Build, build
from fakes.cluster_estate import add_route, until_answered, with_exact_route
from fakes.installation import BACKEND, PORT, address, apply, hello, holds, route
from fakes.keepalive_load import Load
from fakes.kinds import resource_of
from fakes.patience import until
from fakes.upgraded_machine import Up
from gatehouse.kube import client as kube
from gatehouse.standalone import echo

pytestmark = [
    pytest.mark.process,
    pytest.mark.long,
    pytest.mark.timeout(300),
    pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("ip"), reason="needs root and ip"),
]

OLD, NEW = "0.1.0", "0.2.0"
REJECTED = "rejected.example"
GOOD = 6
"""Number of good routes beside the one that Envoy rejects, of the same hostname."""

SIZE = 666
"""Limit of a policy, in bytes."""

GENERATORS = {
    "actions": f"""

_valid_redirect = _redirect


def _redirect(proto, *arguments):
    _valid_redirect(proto, *arguments)
    if proto.host_redirect == "{REJECTED}":
        proto.response_code = 99
""",
    "body_sizes": f"""

_valid_limit = limit_body


def limit_body(context, route):
    piece = _valid_limit(context, route)
    if route.settings.client.body_size == {SIZE}:
        (rejection,) = piece.rejections
        return EnvoyPiece(rejections=[EarlyRejection(rejection.condition, 99, rejection.reason)])
    return piece
""",
}
"""By module, what lets a redirect or a limit have an invalid status. Envoy names only the scope."""


@pytest.fixture(scope="module")
def builds(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Build]:
    directory = tmp_path_factory.mktemp("builds")
    installed = {version: build(version, directory / version) for version in (OLD, NEW)}
    (backend,) = installed[NEW].directory.glob(
        "lib/python3*/site-packages/gatehouse/compiler/backends/envoy"
    )
    for name, text in GENERATORS.items():
        module = backend / f"{name}.py"
        module.write_text(module.read_text() + text)
    return installed


def redirecting(name: str) -> dict[str, Any]:
    """Return a route ``/<name>`` with a redirect."""
    redirect = {"type": "RequestRedirect", "requestRedirect": {"hostname": REJECTED}}
    manifest = route(name, f"/{name}", filters=[redirect])
    del manifest["spec"]["rules"][0]["backendRefs"]
    return manifest


def limited(name: str) -> list[dict[str, Any]]:
    """Return a policy with a limit of :data:`SIZE`, and a route ``/<name>`` that has it."""
    target = {"group": "gateway.networking.k8s.io", "kind": "HTTPRoute", "name": name}
    policy = {
        "apiVersion": "gateway.nginx.org/v1alpha1",
        "kind": "ClientSettingsPolicy",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"targetRef": target, "body": {"maxSize": str(SIZE)}},
    }
    return [route(name, f"/{name}"), policy]


class Case(msgspec.Struct, frozen=True):
    """An object that Envoy rejects after the replacement."""

    kind: str
    objects: list[dict[str, Any]]
    before: int
    """Status of ``/bad`` before the replacement."""
    after: int


CASES = {
    "route": Case("HTTPRoute", [redirecting("bad")], before=302, after=500),
    "policy": Case("ClientSettingsPolicy", limited("bad"), before=200, after=200),
}


async def status(where: str, path: str) -> int:
    """Return the status of a response; a redirect is not followed. 0 without a response."""
    with contextlib.suppress(OSError):
        async with (
            aiohttp.ClientSession() as client,
            client.get(f"http://{where}:{PORT}{path}", allow_redirects=False) as response,
        ):
            return response.status
    return 0


@pytest.mark.parametrize("case", CASES)
async def test_unedited_object_is_left_out_beside_a_serving_envoy(
    builds: dict[str, Build], case: str
) -> None:
    with tempfile.TemporaryDirectory(prefix="gh-") as directory:
        up = Up(Path(directory))
        up.start(builds[OLD])
        try:
            async with echo.serve_echo({BACKEND: "app"}):
                await _replaced_generator(up, builds[NEW], CASES[case])
        finally:
            up.installation.stop()


async def _replaced_generator(up: Up, new: Build, case: Case) -> None:
    async with up.installation.client() as client:
        await apply(client, with_exact_route(hello("gatehouse-envoy")))
        await apply(client, [route(f"good-{number}", f"/good-{number}") for number in range(GOOD)])
        await apply(client, case.objects)
        where = await address(client)
        await until_answered(where, "/")
        for name in ("bad", *(f"good-{number}" for number in range(GOOD))):
            await holds(client, "HTTPRoute", name, "Accepted")
        assert await status(where, "/bad") == case.before
    proxies = up.proxies("envoy")
    assert proxies
    load = Load(where, PORT)
    async with load.running():
        assert await asyncio.to_thread(up.leave) == 0
        up.start(new)
        async with up.installation.client() as client:
            await add_route(client, where, "/later")
            await _is_left_out(client, case.kind)
            await add_route(client, where, "/last")
            await _is_left_out(client, case.kind)
            for number in range(GOOD):
                assert await status(where, f"/good-{number}") == 200
            assert await status(where, "/bad") == case.after
    print(dict(load.answered), dict(load.failed), load.refused_unprocessed)
    assert not load.failed
    assert min(load.answered[kind] for kind in ("new", "kept", "h2")) > 100
    assert up.proxies("envoy") == proxies


async def _is_left_out(client: kube.Client, kind: str) -> None:
    """Wait until the object's status has Envoy's message."""

    async def left_out() -> bool:
        current = await client.get(resource_of(kind), "bad", "default")
        return "rejected by envoy/" in str(current["status"])

    await until(left_out)
