"""Files available for fetching, and file sets as wire messages."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fakes import patience
from fakes.durations import be_slow
from gatehouse.dataplane.delivery import DataPlaneReport
from gatehouse.dataplane.file_set import File, FileSet
from gatehouse.transports.agents import session
from gatehouse.transports.agents.fleet import MAX_OPEN_STREAMS, AgentFleet
from gatehouse.transports.agents.fleet_events import FleetEvents
from gatehouse.transports.agents.publication import Publication, Published
from gatehouse.transports.agents.stream import MAX_WAITING_MESSAGES, Apply, Stream
from gatehouse.transports.agents.token_auth import (
    MAX_CONCURRENT_TOKEN_REVIEWS,
    REVIEW_TTL_SECONDS,
    Denied,
    Identity,
    TokenReviews,
    token_in,
)
from gatehouse.transports.mpi import messages
from gatehouse.wire.mpi.v1 import command_pb2, files_pb2


def bundle(text: str) -> FileSet:
    return FileSet([File.make("gatehouse/a", text), File.make("gatehouse/k", "key", secret=True)])


def test_apply_request_follows_protocol() -> None:
    file_set = bundle("x" * 300)
    shared = messages.overview(file_set.files.values(), "/etc/nginx")
    apply_request = Apply(Published(file_set), "c1", session.Register("id", "nginx/1.31.3"))
    raw = messages.apply_request(shared, apply_request)
    request = command_pb2.ManagementPlaneRequest.FromString(raw)
    overview = request.config_apply_request.overview
    assert request.message_meta.correlation_id == "c1"
    assert overview.config_version.version == file_set.version
    assert overview.config_version.instance_id == "id"
    assert [
        (file.file_meta.name, file.file_meta.permissions, file.file_meta.size)
        for file in overview.files
    ] == [("/etc/nginx/gatehouse/a", "0644", 300), ("/etc/nginx/gatehouse/k", "0600", 3)]


@pytest.mark.parametrize("size", [0, 1, messages.CHUNK_BYTES, messages.CHUNK_BYTES + 1])
def test_streamed_file_consists_of_announced_chunks(size: int) -> None:
    file = File.make("gatehouse/a", b"x" * size)
    first, *rest = messages.file_chunks(file, "/etc/nginx")
    assert first.header.chunks == len(rest) > 0
    assert b"".join(piece.content.data for piece in rest) == file.content


def test_overview_response_follows_protocol() -> None:
    file_set = bundle("x")
    version = files_pb2.ConfigVersion(instance_id="id", version=file_set.version)
    shared = messages.overview(file_set.files.values(), "/etc/nginx")
    reply = files_pb2.GetOverviewResponse.FromString(messages.overview_response(shared, version))
    assert reply.overview.config_version == version
    assert [file.file_meta.hash for file in reply.overview.files] == [
        file.digest for file in file_set.files.values()
    ]


def test_file_response_follows_protocol() -> None:
    for content in (b"", b"x", b"\0" * (1 << 20)):
        reply = files_pb2.GetFileResponse.FromString(
            messages.file_response(File.make("gatehouse/a", content))
        )
        assert reply.contents.contents == content


def test_old_contents_are_kept_while_an_instance_can_fetch_them() -> None:
    one, two = bundle("one"), bundle("two")
    publication = Publication(keep_seconds=10.0)
    assert publication.publish(one, set(), 0.0)
    assert not publication.publish(bundle("one"), set(), 0.0)
    publication.publish(two, set(), 1.0)
    publication.publish(bundle("three"), {one.version}, 100.0)
    assert publication.find(one.files["gatehouse/a"].digest) is not None
    publication.publish(bundle("four"), set(), 200.0)
    assert publication.find(one.files["gatehouse/a"].digest) is None
    assert publication.find(bundle("three").files["gatehouse/a"].digest) is not None


FILES = st.dictionaries(st.sampled_from("abcd"), st.sampled_from(["1", "2", "3"]))


@given(st.lists(st.tuples(FILES | st.none(), st.floats(0.0, 9.0), st.booleans())))
def test_contents_of_retained_file_sets_are_available(
    history: list[tuple[dict[str, str] | None, float, bool]],
) -> None:
    """Publish file sets one after the other while some downloads never end."""
    publication, now, fetched = Publication(keep_seconds=10.0), 0.0, set[str]()
    published: dict[str, FileSet] = {}
    for files, later, fetching in history:
        now += later
        following = None if files is None else FileSet(File.make(*item) for item in files.items())
        if following is not None:
            published[following.version] = following
        publication.publish(following, fetched, now)
        if fetching and following is not None:
            fetched.add(following.version)
        for version, bundle in published.items():
            if publication.get(version) is not None:
                for file in bundle.files.values():
                    result = publication.find(file.digest)
                    assert result is not None
                    assert result.content == file.content
        if publication.current is not None:
            current = publication.current
            written = current.by_chunk("text", current.file_set, lambda files: repr(list(files)))
            assert written == [repr(list(c.stored)) for c in current.file_set.files.chunks]


def test_publication_separates_endpoint_files_from_file_set() -> None:
    publication = Publication(keep_seconds=10.0)
    for number in range(20):
        paths = [
            f"gatehouse/endpoints/u{number_of_file}.json" for number_of_file in range(number % 7)
        ]
        files = [File.make(path, f"{number // 3}") for path in paths]
        publication.publish(
            FileSet([File.make("gatehouse/a", str(number // 5)), *files]), set(), number
        )
        assert publication.current is not None
        alone = FileSet([File.make("gatehouse/a", str(number // 5))])
        assert (publication.current.files, dict(publication.current.files.files)) == (
            alone,
            dict(alone.files),
        )


async def test_reports_follow_changes_of_listening_instances_only() -> None:
    reports: list[str] = []
    fleet = AgentFleet(60.0, asyncio.get_running_loop().time, FleetEvents(reports.append))
    identity = Identity("ns/gw", "pod-1")
    file_set = bundle("one")
    fleet.publish("ns/gw", file_set)
    fleet.publish("ns/gw", bundle("one"))
    fleet.on_connect(identity, session.Register("id", "nginx/1.31.3"))
    assert (reports, fleet.report("ns/gw").instances) == (["ns/gw"], ())
    stream = fleet.open(identity)
    assert stream is not None
    request = await stream.next()
    assert isinstance(request, Apply)
    assert (request.version, request.about.nginx_id) == (file_set.version, "id")
    report = fleet.report("ns/gw")
    assert [(instance.desired, instance.confirmed) for instance in report.instances] == [
        (file_set.version, "")
    ]
    fleet.receive(identity, session.Register("id", "nginx/1.31.3"))
    assert fleet.report("ns/gw") is report
    fleet.receive(identity, session.ApplyResponse(request.correlation))
    assert (len(reports), fleet.report("ns/gw").programmed) == (3, True)
    fleet.close(stream)
    assert (len(reports), fleet.report("ns/gw").instances) == (4, ())
    fleet.publish("ns/gw", None)
    assert fleet.report("ns/gw") == DataPlaneReport(gateway="ns/gw", desired="")


async def test_publish_causes_one_report_for_any_number_of_instances() -> None:
    reports: list[str] = []
    fleet = AgentFleet(60.0, asyncio.get_running_loop().time, FleetEvents(reports.append))
    for number in range(50):
        identity = Identity("ns/gw", f"pod-{number}")
        fleet.on_connect(identity, session.Register("id", "nginx/1.31.3"))
        assert fleet.open(identity) is not None
    reports.clear()
    fleet.publish("ns/gw", bundle("one"))
    assert reports == ["ns/gw"]
    report = fleet.report("ns/gw")
    assert {instance.desired for instance in report.instances} == {report.desired}
    assert [instance.proxy for instance in report.equipment] == ["nginx/1.31.3"]


async def test_instance_without_stream_is_forgotten() -> None:
    fleet = AgentFleet(0.05, asyncio.get_running_loop().time, FleetEvents())
    identity = Identity("ns/gw", "pod-1")
    fleet.receive(identity, session.Register("id", "nginx/1.31.3"))
    assert fleet.knows(identity)
    await patience.until(lambda: not fleet.knows(identity))


async def test_stream_holds_newest_request_only() -> None:
    fleet = AgentFleet(0.05, asyncio.get_running_loop().time, FleetEvents())
    identity = Identity("ns/gw", "pod-1")
    fleet.on_connect(identity, session.Register("id", "nginx/1.31.3"))
    stream = fleet.open(identity)
    assert stream is not None
    for text in ("one", "two", "three"):
        fleet.publish("ns/gw", bundle(text))
        await patience.until(lambda: fleet.report("ns/gw").error)
    request = await stream.next()
    assert isinstance(request, Apply)
    assert request.version == bundle("three").version
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(stream.next(), 0.01)
    fleet.publish("ns/gw", None)
    fleet.close(stream)


async def test_instance_with_too_many_open_streams_cannot_open_another() -> None:
    fleet = AgentFleet(60.0, asyncio.get_running_loop().time, FleetEvents())
    identity = Identity("ns/gw", "pod-1")
    streams = [fleet.open(identity) for _ in range(MAX_OPEN_STREAMS)]
    assert fleet.open(identity) is None
    assert fleet.open(Identity("ns/gw", "pod-2")) is not None
    assert streams[0] is not None
    fleet.close(streams[0])
    assert fleet.open(identity) is not None


async def test_stream_with_too_many_unread_messages_is_ended() -> None:
    ended: list[bool] = []
    stream = Stream(Identity("ns/gw", "pod-1"), 1)
    stream.on_end = lambda: ended.append(True)
    for _ in range(MAX_WAITING_MESSAGES):
        stream.send_message(b"x")
    assert not ended
    stream.send_message(b"x")
    assert ended


async def test_fetching_instance_extends_deadline() -> None:
    fleet = AgentFleet(0.2, asyncio.get_running_loop().time, FleetEvents())
    identity, silent = Identity("ns/gw", "pod-1"), Identity("ns/gw", "pod-2")
    file_set = bundle("one")
    fleet.publish("ns/gw", file_set)
    for listening in (identity, silent):
        fleet.on_connect(listening, session.Register("id", "nginx/1.31.3"))
        assert fleet.open(listening) is not None
    async with patience.limit():
        while not fleet.report("ns/gw").error:
            assert fleet.find(identity, file_set.files["gatehouse/a"].digest) is not None
            await patience.pause()
    assert [instance.error for instance in fleet.report("ns/gw").instances] == [
        "",
        "no response within 0.2 s",
    ]
    fleet.publish("ns/gw", None)


async def test_gateway_cannot_fetch_files_of_another_gateway() -> None:
    fleet = AgentFleet(60.0, asyncio.get_running_loop().time, FleetEvents())
    file_set = bundle("one")
    fleet.publish("ns/a", file_set)
    digest = file_set.files["gatehouse/k"].digest
    assert fleet.find(Identity("ns/a", "p"), digest) is not None
    assert fleet.find(Identity("ns/b", "p"), digest) is None


async def test_valid_token_is_cached_for_a_minute_and_invalid_token_is_not() -> None:
    now, tokens_reviewed = 0.0, list[str]()

    async def authenticate(token: str) -> Identity:
        tokens_reviewed.append(token)
        if token == "bad":
            raise Denied("bad")
        return Identity("ns/gw", token)

    reviews = TokenReviews(authenticate, lambda: now)
    for header in ("pod", "Bearer pod"):
        assert (await reviews.identify([("authorization", header)])).instance == "pod"
    now = REVIEW_TTL_SECONDS
    await reviews.identify([("authorization", "pod")])
    for _ in range(2):
        with pytest.raises(Denied):
            await reviews.identify([("authorization", "bad")])
    assert tokens_reviewed == ["pod", "pod", "bad", "bad"]


async def test_calls_with_one_token_share_review_and_reviews_are_limited() -> None:
    running, most, tokens_reviewed = 0, 0, list[str]()

    async def authenticate(token: str) -> Identity:
        nonlocal running, most
        tokens_reviewed.append(token)
        running += 1
        most = max(most, running)
        await be_slow(0.001)
        running -= 1
        return Identity("ns/gw", token)

    reviews = TokenReviews(authenticate, asyncio.get_running_loop().time)
    tokens = [f"pod-{number}" for number in range(5 * MAX_CONCURRENT_TOKEN_REVIEWS)]
    results = await asyncio.gather(
        *(reviews.identify([("authorization", token)]) for token in 3 * tokens)
    )
    assert [result.instance for result in results] == 3 * tokens
    assert sorted(tokens_reviewed) == sorted(tokens)
    assert most == MAX_CONCURRENT_TOKEN_REVIEWS


async def test_token_review_continues_while_caller_waits_and_is_cancelled_otherwise() -> None:
    tokens_reviewed, answer = list[str](), asyncio.Event()

    async def authenticate(token: str) -> Identity:
        tokens_reviewed.append(token)
        await answer.wait()
        return Identity("ns/gw", token)

    reviews = TokenReviews(authenticate, asyncio.get_running_loop().time)
    calls = [asyncio.create_task(reviews.identify([("authorization", "pod")])) for _ in range(2)]
    abandoned = asyncio.create_task(reviews.identify([("authorization", "other")]))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    for call in (calls[0], abandoned):
        call.cancel()
    await asyncio.gather(calls[0], abandoned, return_exceptions=True)
    answer.set()
    assert (await calls[1]).instance == "pod"
    assert sorted(tokens_reviewed) == ["other", "pod"]
    await reviews.identify([("authorization", "pod")])
    await reviews.identify([("authorization", "other")])
    assert sorted(tokens_reviewed) == ["other", "other", "pod"]


def test_call_without_token_is_denied() -> None:
    with pytest.raises(Denied, match="authorization"):
        token_in([("uuid", "x"), ("authorization", "Bearer ")])
