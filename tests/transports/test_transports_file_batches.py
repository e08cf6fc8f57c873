"""Several files in one message, which is Gatehouse's extension of NGINX Agent's protocol."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import grpc.aio
import pytest

from fakes.agent_control_plane import GATEWAY, ControlPlane
from fakes.agent_v3 import Claimant, claimant
from gatehouse.dataplane.file_set import File, FileSet
from gatehouse.transports.agents.downloads import SMALL_DOWNLOAD_BYTES
from gatehouse.transports.mpi.services import MAX_BATCH_FILES

SMALL = [File.make(f"gatehouse/{number}", f"content {number}") for number in range(3)]
LARGE = File.make("gatehouse/large", bytes(SMALL_DOWNLOAD_BYTES + 1))
FOREIGN = File.make("gatehouse/foreign", "of another Gateway")
SMALL_DIGESTS = [file.digest for file in SMALL]


@pytest.fixture
async def control_plane(tmp_path: Path) -> AsyncIterator[ControlPlane]:
    async with ControlPlane(tmp_path) as result:
        yield result


@pytest.fixture
async def agent(control_plane: ControlPlane) -> AsyncIterator[Claimant]:
    control_plane.server.publish(GATEWAY, FileSet([*SMALL, LARGE]))
    control_plane.server.publish("other/gateway", FileSet([FOREIGN]))
    async with claimant(
        control_plane.port, control_plane.cert, "control.plane", "good:pod-1"
    ) as result:
        yield result


async def test_files_of_a_message_are_in_the_order_of_the_request(agent: Claimant) -> None:
    digests = [*reversed(SMALL_DIGESTS)]
    assert await agent.files(*digests) == [b"content 2", b"content 1", b"content 0"]


async def test_message_ends_before_files_that_are_too_large_for_it(agent: Claimant) -> None:
    assert await agent.files(SMALL_DIGESTS[0], LARGE.digest, SMALL_DIGESTS[1]) == [b"content 0"]


async def test_large_file_is_alone_in_its_message(agent: Claimant) -> None:
    assert await agent.files(LARGE.digest, SMALL_DIGESTS[0]) == [LARGE.content]


async def test_files_in_a_message_are_limited_in_number(agent: Claimant) -> None:
    contents = await agent.files(*SMALL_DIGESTS[:1] * (MAX_BATCH_FILES + 9))
    assert contents == [b"content 0"] * MAX_BATCH_FILES


@pytest.mark.parametrize("digest", ["", "none", FOREIGN.digest], ids=["empty", "none", "foreign"])
async def test_message_ends_before_a_file_that_the_gateway_does_not_have(
    agent: Claimant, digest: str
) -> None:
    assert await agent.files(SMALL_DIGESTS[0], digest, SMALL_DIGESTS[1]) == [b"content 0"]


@pytest.mark.parametrize("digests", [[], ["none", *SMALL_DIGESTS], [FOREIGN.digest]])
async def test_call_fails_without_its_first_file(agent: Claimant, digests: list[str]) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await agent.files(*digests)
    assert refused.value.code() == grpc.StatusCode.NOT_FOUND
    assert str(refused.value.details()).endswith("no file with this hash")
