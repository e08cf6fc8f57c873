"""Kube-apiservers behind a gateway under load, while whatever there is is killed or renewed."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import signal
import ssl
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from cryptography import x509
from cryptography.x509 import IPAddress

from fakes import kube_estate, patience
from fakes.authority import Authority
from fakes.durations import last, pace
from fakes.installation import Installation
from fakes.kube_estate import PORT, Cluster, Estate, wait_for_condition
from fakes.kube_writers import Writer, all_failures
from fakes.patience import until
from gatehouse.agent.envoy.admin import AdminClient
from gatehouse.apis import resources
from gatehouse.kube import client as kube
from gatehouse.sidecars.base import control
from gatehouse.standalone import process_records

pytestmark = [
    pytest.mark.process,
    pytest.mark.timeout(300),
]

A, B = "a.kube", "b.kube"
MAPS = "/api/v1/namespaces/team/configmaps"
READERS = 8
WRITERS = 8
WATCHES = int(os.environ.get("FAULT_WATCHES", "1000"))
CHANGES = 100
NO_ENDPOINTS = re.compile("no ready endpoints.*: connection refused$")


@pytest.fixture(scope="module")
def clusters() -> Iterator[Estate]:
    with (
        tempfile.TemporaryDirectory(prefix="ghe-") as directory,
        kube_estate.running(Path(directory)) as estate,
    ):
        for cluster in estate.clusters.values():
            cluster.prepare()
        yield estate


@pytest.fixture
async def client(installation: Installation) -> AsyncIterator[kube.Client]:
    async with installation.client() as result:
        yield result


class Front:
    """The gateway, as alice meets it."""

    def __init__(self, estate: Estate, address: str) -> None:
        self._estate, self._address = estate, address

    @contextlib.asynccontextmanager
    async def session(self, name: str = A, **headers: str) -> AsyncIterator[aiohttp.ClientSession]:
        context = ssl.create_default_context(cafile=str(self._estate.front.file))
        if not headers:
            pair = self._estate.clusters[name].certificate("alice", "dev")
            context.load_cert_chain(pair.cert, pair.key)
        async with aiohttp.ClientSession(
            f"https://{self._address}:{PORT}",
            connector=aiohttp.TCPConnector(ssl=context, limit=0),
            headers={"Host": name, **headers},
            timeout=aiohttp.ClientTimeout(total=None),
        ) as session:
            yield session
        # What was asked for with TLS is closed in the loop's next turns.
        await last(0.25)

    @contextlib.asynccontextmanager
    async def load(self, name: str = A, **headers: str) -> AsyncIterator[Counter[str]]:
        """Read all the time; count what came back, by status and, where it failed, why."""
        answers: Counter[str] = Counter()

        async def read(http: aiohttp.ClientSession) -> None:
            while True:
                try:
                    async with http.get(MAPS, server_hostname=name) as response:
                        text = await response.text()
                        why = "" if response.status == 200 else f" {text}"
                        answers[f"{response.status}{why}"] += 1
                except aiohttp.ClientError as error:
                    answers[type(error).__name__] += 1
                await pace(0.01)

        async with self.session(name, **headers) as http:
            tasks = [asyncio.create_task(read(http)) for _ in range(READERS)]
            try:
                await until(lambda: _are(answers, 50))
                yield answers
                request_count = answers.total()
                await until(lambda: _are(answers, request_count + 50))
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
        print(answers)


async def _are(answers: Counter[str], count: int) -> bool:
    return answers.total() >= count


@pytest.fixture
async def front(clusters: Estate, installation: Installation, client: kube.Client) -> Front:
    try:
        await client.get(resources.UPSTREAM_CLUSTERS, A)
    except kube.NotFound:
        await kube_estate.put_in_front(clusters, installation, client)
    gateway = await client.get(resources.GATEWAYS, "apis", "default")
    return Front(clusters, gateway["status"]["addresses"][0]["value"])


async def ready(front: Front, name: str = A, count: int = 20) -> None:
    """Wait until so many requests in a row are answered well."""
    async with front.session(name) as http:
        good = 0
        async with patience.limit():
            while good < count:
                async with http.get(MAPS, server_hostname=name) as response:
                    good = good + 1 if response.status == 200 else 0
                await patience.pause()


async def missed(
    client: kube.Client, cluster: Cluster, number: int, end: Callable[[], object]
) -> tuple[float, float]:
    """End a server until the data plane misses it, and run it until the data plane uses it again.

    Return the loop's times before its end and when it was missed.
    """
    now = asyncio.get_running_loop().time
    begun = now()
    await asyncio.to_thread(end)
    await wait_for_condition(client, cluster.name, "ServersReady", "False")
    noticed = now()
    await asyncio.to_thread(cluster.run, number)
    await until(partial(all_ready, client, cluster.name))
    return begun, noticed


async def all_ready(client: kube.Client, name: str) -> bool:
    """Return whether the status of an UpstreamCluster names no server that is not ready."""
    upstream_cluster = await client.get(resources.UPSTREAM_CLUSTERS, name)
    conditions = upstream_cluster["status"]["conditions"]
    return not any(condition["type"] == "ServersReady" for condition in conditions)


async def test_requests_succeed_when_one_kube_apiserver_is_killed(
    clusters: Estate, front: Front, client: kube.Client
) -> None:
    cluster = clusters.clusters[A]
    async with front.load() as answers:
        for number in range(3):
            await missed(client, cluster, number, cluster.servers[number].kill)
    # A GET whose server is lost is asked again elsewhere.
    assert answers.keys() == {"200"}


async def progress(writers: list[Writer]) -> None:
    """Wait until writers have got 200 more answers."""

    def total() -> int:
        return sum(kube_writer.answers.total() for kube_writer in writers)

    goal = total() + 200
    await until(lambda: total() >= goal)


async def test_writes_are_not_repeated_when_kube_apiservers_are_killed(
    clusters: Estate, front: Front, client: kube.Client
) -> None:
    cluster = clusters.clusters[A]
    outages: list[tuple[float, float]] = []
    async with front.session() as http:
        writers = [Writer(http, MAPS, A, number) for number in range(WRITERS)]
        tasks = [asyncio.create_task(kube_writer.write()) for kube_writer in writers]
        for number in (0, 1, 2, 0):
            await progress(writers)
            outages.append(await missed(client, cluster, number, cluster.servers[number].kill))
        await progress(writers)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        query = f"{MAPS}?labelSelector=mark"
        async with http.get(query, server_hostname=A) as response:
            result = (await response.json())["items"]
    answers = sum((kube_writer.answers for kube_writer in writers), Counter())
    failures = [*all_failures(writers)]
    print(answers, failures)
    assert min(answers[outcome] for outcome in ("POST 201", "PUT 200", "DELETE 200")) > 100
    # Lost with the server that had it, and with no hint to send it again.
    assert {what.split()[1] for _, what in failures} <= {"502"}
    assert [what for _, what in failures if "retry-after" in what] == []
    # All writers had one request under way, and those at other servers went on. The next request of
    # a writer may meet another connection to the killed server, before Envoy sees its end.
    assert len(failures) <= WRITERS * len(outages)
    assert all(any(begun <= when <= noticed for begun, noticed in outages) for when, _ in failures)
    marks = Counter(obj["metadata"]["labels"]["mark"] for obj in result)
    assert set(marks.values()) == {1}
    assert {mark for kube_writer in writers for mark in kube_writer.made} <= marks.keys()
    assert marks.keys() <= {mark for kube_writer in writers for mark in kube_writer.marks}


async def test_requests_get_503_status_when_all_kube_apiservers_are_killed(
    clusters: Estate, front: Front, client: kube.Client
) -> None:
    cluster = clusters.clusters[A]
    async with front.load() as answers, front.load(B) as others:
        for server in cluster.servers:
            await asyncio.to_thread(server.kill)
        # First the last server is tried again and again, then checks have found it gone.
        await until(partial(all_refuse, client, A, len(cluster.servers)))
        answers.clear()
        await until(lambda: [text for text in messages(answers) if NO_ENDPOINTS.search(text)])
        documents = [json.loads(answer.partition(" ")[2]) for answer in answers]
        for number in range(3):
            await asyncio.to_thread(cluster.run, number)
        await ready(front)
    for document in documents:
        assert (document["kind"], document["code"], document["reason"]) == (
            "Status", 503, "ServiceUnavailable",
        )  # fmt: skip
        assert document["details"]["retryAfterSeconds"] > 0
    assert others.keys() == {"200"}


async def all_refuse(client: kube.Client, name: str, number: int) -> bool:
    """Return whether an UpstreamCluster has so many servers that refuse connections."""
    condition = await wait_for_condition(client, name, "ServersReady", "False")
    return str(condition["message"]).count("connection refused") == number


def messages(answers: Counter[str]) -> list[str]:
    """Return the messages of Statuses."""
    return [
        json.loads(answer.partition(" ")[2])["message"]
        for answer in answers
        if answer.startswith("503 ")
    ]


async def test_requests_succeed_when_control_plane_and_reviewer_are_killed(
    clusters: Estate, installation: Installation, front: Front
) -> None:
    kubectl = clusters.clusters[A].kubectl()
    token = (await asyncio.to_thread(kubectl, "create", "token", "bot")).strip()
    parts = ("controller", "apiserver")
    killed = [installation.part(part) for part in parts]
    async with front.load() as answers, front.load(Authorization=f"Bearer {token}") as known:
        for record in killed:
            record.signal(signal.SIGKILL)
        (place,) = installation.state.glob("node/pods/*/volumes/run/reviewer")
        reviewer = control.pid(place)
        assert reviewer is not None
        os.kill(reviewer, signal.SIGKILL)
        await until(lambda: _another(place, reviewer))
        await until(lambda: not any(record.alive() for record in killed))
        records = [installation.state / "run" / f"{part}.json" for part in parts]
        await until(lambda: all(map(process_records.recorded, records)))
        async with installation.client():
            pass
    assert answers.keys() == {"200"}
    assert known.keys() == {"200"}
    anew = (await asyncio.to_thread(kubectl, "create", "token", "bot")).strip()
    async with front.load(Authorization=f"Bearer {anew}") as known:
        pass
    assert known.keys() == {"200"}


async def _another(place: Path, than: int) -> bool:
    with contextlib.suppress(OSError):
        return control.pid(place) not in (None, than)
    return False


async def rotated(
    clusters: Estate, client: kube.Client, admin: Path, cluster: Cluster, directory: Path
) -> None:
    """Replace the servers' certificates one by one with those of another CA; first trust both.

    ``admin``: the socket of Envoy's admin interface.
    """
    other = Authority(directory, "renewed")
    raw = clusters.client_secret(cluster)
    renewed = x509.load_pem_x509_certificate(other.pem)

    async def trust(*authorities: bytes) -> None:
        data = {"ca.crt": kube_estate.b64(b"".join(authorities))}
        await client.patch(resources.SECRETS, raw["metadata"]["name"], {"data": data}, "default")

    await trust(cluster.authority, other.pem)
    await until(partial(_trusts, admin, renewed))
    for number, server in enumerate(cluster.servers):
        names = kube_estate.KUBERNETES, IPAddress(ip_address("127.0.0.1"))
        server.shows, server.trusted = other.issue(f"server-{number}", *names), other.file
        await missed(client, cluster, number, server.stop)
    await trust(other.pem)
    await missed(client, cluster, 0, cluster.servers[0].stop)


async def _trusts(admin: Path, authority: x509.Certificate) -> bool:
    """Return whether an Envoy has a CA certificate."""
    _, text = await AdminClient(admin).get("/certs")
    serials = {
        certificate["serial_number"].lstrip("0")
        for entry in json.loads(text)["certificates"]
        for certificate in entry.get("ca_cert", ())
    }
    return f"{authority.serial_number:x}" in serials


async def watch(
    http: aiohttp.ClientSession, name: str, events: asyncio.Queue[str], turn: asyncio.Semaphore
) -> None:
    """Put the start, the events and the end of a watch into `events`."""
    query = f"{MAPS}?watch=true&labelSelector=seen%3Dlater"
    try:
        async with contextlib.AsyncExitStack() as stack:
            async with turn:
                response = await stack.enter_async_context(http.get(query, server_hostname=name))
                begun = "begun" if response.status == 200 else await response.text()
                events.put_nowait(begun)
            async for line in response.content:
                events.put_nowait(json.loads(line)["type"])
        events.put_nowait("ended")
    except aiohttp.ClientError as error:
        events.put_nowait(repr(error))


async def taken(events: asyncio.Queue[str], count: int) -> Counter[str]:
    """Count the next `count` events of watches, or fewer if that is all."""
    counts: Counter[str] = Counter()
    with contextlib.suppress(TimeoutError):
        while counts.total() < count:
            async with patience.limit():
                counts[await events.get()] += 1
    return counts


def changed(number: int) -> Any:
    """Return a spec with different policies and limits for each number."""
    schema = {"name": "s", "maxRequestsInflight": {"max": 100 + number}}
    rules = [{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"], "users": [f"u{number}"]}]
    return {
        "flowControl": {"flowControlSchemas": [schema]},
        "dispatchPolicies": [
            {"rules": rules, "flowControlSchemaName": "s"},
            {"rules": kube_estate.EVERYTHING},
        ],
    }


async def test_watches_survive_changes(clusters: Estate, front: Front, client: kube.Client) -> None:
    events: asyncio.Queue[str] = asyncio.Queue()
    servers = [{"endpoint": server.url} for server in clusters.clusters[B].servers]
    async with front.session() as http:
        # Servers that a thousand ask at once do not answer health checks in time, and are out.
        turn = asyncio.Semaphore(20)
        tasks = [asyncio.create_task(watch(http, A, events, turn)) for _ in range(WATCHES)]
        assert await taken(events, WATCHES) == {"begun": WATCHES}
        for number in range(CHANGES):
            await client.patch(resources.UPSTREAM_CLUSTERS, A, {"spec": changed(number)})
            less = {"spec": {"servers": servers[: 2 + number % 2]}}
            await client.patch(resources.UPSTREAM_CLUSTERS, B, less)
            await pace(0.1)
        await wait_for_condition(client, A, "Programmed")
        await wait_for_condition(client, B, "Programmed")
        assert events.empty()
        body = {"metadata": {"name": "late", "labels": {"seen": "later"}}}
        async with http.post(MAPS, json=body, server_hostname=A) as response:
            assert response.status == 201
        assert await taken(events, WATCHES) == {"ADDED": WATCHES}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def test_kube_apiserver_certificates_and_ca_are_renewed(
    clusters: Estate, front: Front, client: kube.Client, installation: Installation, tmp_path: Path
) -> None:
    (admin,) = installation.state.glob("node/pods/*/volumes/run/**/admin.sock")
    async with front.load(B) as answers:
        await rotated(clusters, client, admin, clusters.clusters[B], tmp_path)
    assert answers.keys() == {"200"}
