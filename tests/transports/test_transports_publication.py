"""Which contents may be fetched, and how bundles look on the wire."""

from __future__ import annotations

import asyncio

import pytest

from gatehouse.bundle import Bundle, File
from gatehouse.delivery import DataPlaneReport
from gatehouse.transports.agents import session
from gatehouse.transports.agents.authentication import (
    REMEMBERED_SECONDS,
    Denied,
    Identity,
    TokenReviews,
    token_in,
)
from gatehouse.transports.agents.fleet import Apply, Fleet
from gatehouse.transports.agents.publication import Publication
from gatehouse.transports.mpi import messages
from gatehouse.wire.mpi.v1 import command_pb2


def bundle(text: str) -> Bundle:
    return Bundle([File.make("gatehouse/a", text), File.make("gatehouse/k", "key", secret=True)])


def test_an_apply_request_is_what_the_protocol_says() -> None:
    wanted = bundle("x" * 300)
    shared = messages.overview(wanted, "/etc/nginx")
    raw = messages.apply_request(shared, wanted.version, "id", "c1")
    request = command_pb2.ManagementPlaneRequest.FromString(raw)
    overview = request.config_apply_request.overview
    assert request.message_meta.correlation_id == "c1"
    assert overview.config_version.version == wanted.version
    assert overview.config_version.instance_id == "id"
    assert [
        (file.file_meta.name, file.file_meta.permissions, file.file_meta.size)
        for file in overview.files
    ] == [("/etc/nginx/gatehouse/a", "0644", 300), ("/etc/nginx/gatehouse/k", "0600", 3)]


@pytest.mark.parametrize("size", [0, 1, messages.CHUNK_BYTES, messages.CHUNK_BYTES + 1])
def test_a_streamed_file_is_its_announced_pieces(size: int) -> None:
    file = File.make("gatehouse/a", b"x" * size)
    first, *rest = messages.chunks(file, "/etc/nginx")
    assert first.header.chunks == len(rest) > 0
    assert b"".join(piece.content.data for piece in rest) == file.content


def test_old_contents_stay_while_an_instance_may_fetch_them() -> None:
    one, two = bundle("one"), bundle("two")
    kept = Publication(keep_seconds=10.0)
    assert kept.publish(one, set(), 0.0)
    assert not kept.publish(bundle("one"), set(), 0.0)
    kept.publish(two, set(), 1.0)
    kept.publish(bundle("three"), {one.version}, 100.0)
    assert kept.find(one.files["gatehouse/a"].digest) is not None
    kept.publish(bundle("four"), set(), 200.0)
    assert kept.find(one.files["gatehouse/a"].digest) is None
    assert kept.find(bundle("three").files["gatehouse/a"].digest) is not None


async def test_reports_come_only_when_something_changed_and_only_of_listening_instances() -> None:
    reports: list[DataPlaneReport] = []
    fleet = Fleet(60.0, asyncio.get_running_loop().time, reports.append)
    identity = Identity("ns/gw", "pod-1")
    wanted = bundle("one")
    fleet.publish("ns/gw", wanted)
    fleet.publish("ns/gw", bundle("one"))
    assert [report.instances for report in reports] == [()]
    fleet.greet(identity, session.Register("id", "nginx/1.31.3"))
    stream = fleet.open(identity)
    asked = stream.outgoing.get_nowait()
    assert isinstance(asked, Apply)
    assert (asked.version, asked.about.nginx_id) == (wanted.version, "id")
    fleet.receive(identity, session.Answer(asked.correlation))
    assert [report.programmed for report in reports] == [False, False, True]
    fleet.close(stream)
    assert reports[-1].instances == ()
    fleet.publish("ns/gw", None)
    assert fleet.report("ns/gw") == DataPlaneReport(gateway="ns/gw", desired="")


async def test_a_gateway_gets_no_other_gateways_files() -> None:
    fleet = Fleet(60.0, asyncio.get_running_loop().time, lambda _report: None)
    wanted = bundle("one")
    fleet.publish("ns/a", wanted)
    digest = wanted.files["gatehouse/k"].digest
    assert fleet.find(Identity("ns/a", "p"), digest) is not None
    assert fleet.find(Identity("ns/b", "p"), digest) is None


async def test_a_token_is_reviewed_once_a_minute_and_never_remembered_when_bad() -> None:
    now, asked = 0.0, list[str]()

    async def authenticate(token: str) -> Identity:
        asked.append(token)
        if token == "bad":
            raise Denied("bad")
        return Identity("ns/gw", token)

    reviews = TokenReviews(authenticate, lambda: now)
    for header in ("pod", "Bearer pod"):
        assert (await reviews.identify([("authorization", header)])).instance == "pod"
    now = REMEMBERED_SECONDS
    await reviews.identify([("authorization", "pod")])
    for _ in range(2):
        with pytest.raises(Denied):
            await reviews.identify([("authorization", "bad")])
    assert asked == ["pod", "pod", "bad", "bad"]


def test_a_call_without_a_token_is_denied() -> None:
    with pytest.raises(Denied, match="authorization"):
        token_in([("uuid", "x"), ("authorization", "Bearer ")])
