"""Denied requests with a valid token: other Gateways' files, and false names."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import grpc
import grpc.aio
import pytest

from fakes import patience
from fakes.agent_control_plane import GATEWAY, ControlPlane
from fakes.agent_v3 import Claimant, claimant
from gatehouse.dataplane.file_set import File, FileSet, base64_sha256
from gatehouse.transports.server import UnauthorizedRequest

OTHER = "shop/other"
SHARED = File.make("gatehouse/shared", "of both")
OURS = FileSet([File.make("gatehouse/http.conf", "ours"), SHARED])
THEIRS = FileSet([File.make("gatehouse/tls/k.key", "their key", secret=True), SHARED])
KEY = THEIRS.files["gatehouse/tls/k.key"].digest


@pytest.fixture
async def control_plane(tmp_path: Path) -> AsyncIterator[ControlPlane]:
    async with ControlPlane(tmp_path) as plane:
        plane.server.publish(GATEWAY, OURS)
        plane.server.publish(OTHER, THEIRS)
        yield plane


@pytest.fixture
def trespasses(control_plane: ControlPlane) -> list[UnauthorizedRequest]:
    noted: list[UnauthorizedRequest] = []
    control_plane.server.on_trespass = noted.append
    return noted


def calling(plane: ControlPlane, **labels: str) -> contextlib.AbstractAsyncContextManager[Claimant]:
    return claimant(plane.port, plane.cert, "control.plane", "good:pod-1", **labels)


@contextlib.contextmanager
def refused(code: grpc.StatusCode, words: str) -> Iterator[None]:
    with pytest.raises(grpc.aio.AioRpcError) as error:
        yield
    assert error.value.code() == code
    assert words in (error.value.details() or "")


async def reported(trespasses: list[UnauthorizedRequest], number: int) -> None:
    """Wait until so many requests are reported."""
    await patience.until(lambda: len(trespasses) >= number)


DENIED = grpc.StatusCode.PERMISSION_DENIED


async def test_file_of_another_gateway_is_denied(
    control_plane: ControlPlane, trespasses: list[UnauthorizedRequest]
) -> None:
    async with calling(control_plane) as agent:
        with refused(grpc.StatusCode.NOT_FOUND, ": no file with this hash"):
            await agent.file(KEY)
        with refused(grpc.StatusCode.NOT_FOUND, ": no file with this hash"):
            await agent.streamed(KEY)
        with refused(grpc.StatusCode.NOT_FOUND, ": no file with this hash"):
            await agent.files(KEY)
    await reported(trespasses, 3)
    assert {(trespass.what, trespass.gateway) for trespass in trespasses} == {
        ("asked for a file", OTHER)
    }
    assert len(trespasses) == 3


async def test_file_access_depends_on_hash_not_on_name(
    control_plane: ControlPlane, trespasses: list[UnauthorizedRequest]
) -> None:
    async with calling(control_plane) as agent:
        assert await agent.file(base64_sha256(b"ours"), "/etc/nginx/gatehouse/tls/k.key") == b"ours"
        assert await agent.file(SHARED.digest) == b"of both"
        with refused(
            grpc.StatusCode.NOT_FOUND, "/etc/nginx/gatehouse/tls/k.key: no file with this hash"
        ):
            await agent.file(base64_sha256(b"nobody's"), "/etc/nginx/gatehouse/tls/k.key")
    assert trespasses == []


async def test_overview_of_another_gateway_is_denied(
    control_plane: ControlPlane, trespasses: list[UnauthorizedRequest]
) -> None:
    async with calling(control_plane) as agent:
        ours = [f"/etc/nginx/{path}" for path in OURS.files]
        assert await agent.overview() == await agent.overview(OURS.version) == ours
        with refused(grpc.StatusCode.NOT_FOUND, "configuration version not found"):
            await agent.overview(THEIRS.version)
        await reported(trespasses, 1)
        with refused(grpc.StatusCode.NOT_FOUND, "configuration version not found"):
            await agent.overview("unheard of")
        # An agent may fetch its former files, even when another Gateway has the same content.
        control_plane.server.publish(OTHER, OURS)
        control_plane.server.publish(GATEWAY, THEIRS)
        with refused(grpc.StatusCode.NOT_FOUND, "configuration version not found"):
            await agent.overview(OURS.version)
    assert [(trespass.what, trespass.gateway) for trespass in trespasses] == [
        ("asked for a configuration", OTHER)
    ]


async def test_labels_of_another_owner_are_denied(
    control_plane: ControlPlane, trespasses: list[UnauthorizedRequest]
) -> None:
    message = "the token belongs to shop_web, not to shop_other (owner-name)"
    async with calling(control_plane, owner_name="shop_other", owner_type="Deployment") as agent:
        with refused(DENIED, message):
            await agent.connect()
        with refused(DENIED, message):
            await agent.file(base64_sha256(b"ours"))
    async with calling(control_plane) as agent:
        with refused(DENIED, message):
            await agent.connect(owner_name="shop_other")
    assert len(trespasses) == 3
    # What differs only in the agent's words is one thing to be noted.
    assert set(trespasses) == {UnauthorizedRequest(trespasses[0].identity, "claimed to be a Pod")}
    assert control_plane.server.report(GATEWAY).instances == ()


async def test_own_labels_and_missing_labels_are_accepted(
    control_plane: ControlPlane, trespasses: list[UnauthorizedRequest]
) -> None:
    async with calling(control_plane) as agent:
        await agent.connect()
        await agent.connect(owner_name="shop_web", owner_type="Deployment", team="tea")
    async with calling(control_plane, owner_name="shop_web", owner_type="Deployment") as agent:
        await agent.connect()
        assert await agent.file(base64_sha256(b"ours")) == b"ours"
    assert trespasses == []
