"""Machines outside with NGINX or Envoy carry traffic to Services, for whom they can prove to be."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import aiohttp
import grpc
import grpc.aio
import pytest
import yaml
from agent_command import agent
from agent_v3 import Claimant
from authority import Authority
from click.testing import CliRunner
from installation import HOST_NET, ROOT, Installation, apply, until
from outside_machines import Machine
from process import environment

from gatehouse.apis import resources
from gatehouse.bundle import digest_of
from gatehouse.cli.certs import certs
from gatehouse.controller.options import SERVER_NAME
from gatehouse.kube import client as kube
from gatehouse.machines import Machine as Name
from gatehouse.standalone import echo, pki
from gatehouse.standalone.ports import free_port

pytestmark = [pytest.mark.process, pytest.mark.long]

OUTSIDE = free_port()
FRONT = f"{HOST_NET}.240"
"""Where machines listen."""

NODES = {1: f"{HOST_NET}.201", 2: f"{HOST_NET}.202"}
WEB, TCP, UDP, TLS = 30180, 30181, 30182, 30183
"""Node ports."""


@pytest.fixture(scope="module")
def installation() -> Iterator[Installation]:
    with tempfile.TemporaryDirectory(prefix="gh-") as directory:
        made = Installation(Path(directory), "--outside-address", f"127.0.0.1:{OUTSIDE}")
        made.start()
        yield made
        made.stop()


@pytest.fixture
def authority(installation: Installation) -> Path:
    return installation.state / "pki"


@pytest.fixture
def place() -> Iterator[Path]:
    # Short, for the sake of Unix sockets.
    with tempfile.TemporaryDirectory(prefix="gh-") as directory:
        yield Path(directory)


@pytest.fixture
async def cluster(client: kube.Client) -> kube.Client:
    with contextlib.suppress(kube.AlreadyExists):
        await client.create(resources.NAMESPACES, {"metadata": {"name": "edge"}})
    for node in (await client.list(resources.NODES)).items:
        await client.delete(resources.NODES, node["metadata"]["name"])
    for each in (await client.list(resources.EXTERNAL_LOAD_BALANCERS)).items:
        await client.delete(resources.EXTERNAL_LOAD_BALANCERS, each["metadata"]["name"], "edge")
    with contextlib.suppress(kube.NotFound):
        await client.delete(resources.SERVICES, "app", "edge")
    await join(client, 1)
    return client


async def join(client: kube.Client, number: int) -> None:
    made = await client.create(resources.NODES, {"metadata": {"name": f"n{number}"}})
    status = {
        "conditions": [{"type": "Ready", "status": "True"}],
        "addresses": [{"type": "InternalIP", "address": NODES[number]}],
    }
    await client.update_status(resources.NODES, {**made, "status": status})


def service() -> dict[str, Any]:
    ports = [
        {"name": "nlk-web", "port": 80, "nodePort": WEB},
        {"name": "nlk-tcp", "port": 81, "nodePort": TCP},
        {"name": "nlk-udp", "port": 82, "nodePort": UDP, "protocol": "UDP"},
        {"name": "nlk-tls", "port": 83, "nodePort": TLS},
    ]
    stream = {f"nginxinc.io/nlk-{name}": "stream" for name in ("tcp", "udp", "tls")}
    return {
        "metadata": {"name": "app", "namespace": "edge", "annotations": stream},
        "spec": {"type": "NodePort", "selector": {"app": "app"}, "ports": ports},
    }


def listeners(first: int) -> list[dict[str, Any]]:
    return [
        {"port": first, "protocol": "HTTP", "hostname": "shop.example", "upstream": "web"},
        {"port": first + 1, "protocol": "TCP", "upstream": "tcp"},
        {"port": first + 1, "protocol": "UDP", "upstream": "udp"},
        {"port": first + 2, "protocol": "TLS", "hostname": "*.secure.example", "upstream": "tls"},
    ]


def balancer(name: str, kind: str, hosts: tuple[str, ...], listening: Any) -> dict[str, Any]:
    spec = {
        "type": kind,
        "hosts": [{"name": host} for host in hosts],
        "bindAddress": FRONT,
        "listeners": listening,
    }
    return {"metadata": {"name": name, "namespace": "edge"}, "spec": spec}


async def told(client: kube.Client, name: str, reason: str, words: str = "") -> dict[str, Any]:
    """Wait until `Programmed` says so; give the status."""
    seen: dict[str, Any] = {}

    async def check() -> Any:
        found = await client.get(resources.EXTERNAL_LOAD_BALANCERS, name, "edge")
        seen.update(found.get("status") or {})
        for each in seen.get("conditions") or ():
            if each["type"] == "Programmed" and each["reason"] == reason:
                return seen if words in each["message"] else None
        return None

    try:
        found: dict[str, Any] = await until(check, 60)
    except TimeoutError:
        raise AssertionError(f"never {reason} {words!r}: {seen}") from None
    return found


async def logged(machine: Machine, words: str) -> None:
    """Wait until its agent has said something."""

    async def check() -> bool:
        return words in machine.log.read_text()

    await until(check, 60)


class Echo(asyncio.DatagramProtocol):
    """Answers datagrams with who it is."""

    def __init__(self, name: str) -> None:
        self._name = name

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def datagram_received(self, data: bytes, address: Any) -> None:
        self._transport.sendto(self._name.encode() + b" " + data, address)


@contextlib.asynccontextmanager
async def node(number: int, directory: Path) -> AsyncIterator[None]:
    """Serve the node ports of a node."""
    name, address = f"node-{number}", NODES[number]
    trusted = Authority(directory, name)
    files = trusted.issue(name)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*files)

    async def greet(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(name.encode())
        writer.close()

    loop = asyncio.get_running_loop()
    tls = await asyncio.start_server(greet, address, TLS, ssl=context)
    tcp = await asyncio.start_server(greet, address, TCP)
    datagrams, _ = await loop.create_datagram_endpoint(
        lambda: Echo(name), local_addr=(address, UDP)
    )
    try:
        async with echo.serve({(address, WEB): name}):
            yield
    finally:
        tls.close()
        tcp.close()
        datagrams.close()


async def web(port: int, host: str = "shop.example") -> tuple[int, str]:
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"http://{FRONT}:{port}/", headers={"Host": host}) as response,
    ):
        return response.status, response.headers.get("X-Backend", "")


async def greeted(port: int, name: str = "") -> str:
    context = None
    if name:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    reader, writer = await asyncio.open_connection(
        FRONT, port, ssl=context, server_hostname=name or None
    )
    try:
        return (await asyncio.wait_for(reader.read(), 10)).decode()
    finally:
        writer.close()


async def datagram(port: int) -> str:
    answers: asyncio.Queue[bytes] = asyncio.Queue()

    class Client(asyncio.DatagramProtocol):
        def datagram_received(self, data: bytes, _: Any) -> None:
            answers.put_nowait(data)

    loop = asyncio.get_running_loop()
    transport, _ = await loop.create_datagram_endpoint(Client, remote_addr=(FRONT, port))
    try:
        transport.sendto(b"hello")
        return (await asyncio.wait_for(answers.get(), 10)).decode()
    finally:
        transport.close()


async def backends(port: int, requests: int = 20) -> set[str]:
    return {(await web(port))[1] for _ in range(requests)}


@pytest.mark.parametrize("kind", ["nginx", "envoy"])
async def test_ports_of_a_service_answer_on_a_machine_outside(
    cluster: kube.Client, authority: Path, place: Path, kind: str, installation: Installation
) -> None:
    machine = Machine(place, "lb-1", OUTSIDE, kind)
    machine.certify(authority, f"edge/{kind}")
    await cluster.create(
        resources.EXTERNAL_LOAD_BALANCERS, balancer(kind, kind, ("lb-1",), listeners(8080))
    )
    await cluster.create(resources.SERVICES, service())
    async with node(1, place), node(2, place), machine.running():
        said = await told(cluster, kind, "Programmed")
        (host,) = said["hosts"]
        assert (host["name"], host["version"]) == ("lb-1", said["version"])
        assert host["server"].startswith(f"{kind}/")
        assert await web(8080) == (200, "node-1")
        assert (await web(8080, "other.example"))[0] == 404
        assert await greeted(8081) == "node-1"
        assert await datagram(8081) == "node-1 hello"
        assert await greeted(8082, "a.secure.example") == "node-1"
        with pytest.raises((ConnectionError, ssl.SSLError)):
            await greeted(8082, "other.example")

        if kind == "nginx":
            # What upstreams began with is left out once, a while later.
            await logged(machine, "seeds left out")
        reloads = await machine.figure("gatehouse_agent_reloads_total")
        await join(cluster, 2)

        async def both() -> bool:
            return await backends(8080) == {"node-1", "node-2"}

        await until(both)
        await cluster.delete(resources.NODES, "n1")

        async def moved() -> bool:
            return await backends(8080) == {"node-2"}

        await until(moved)
        assert await greeted(8082, "a.secure.example") == "node-2"
        if kind == "nginx":
            assert await machine.figure("gatehouse_agent_reloads_total") == reloads >= 1

            async def counted() -> bool:
                return await machine.figure("gatehouse_agent_endpoint_updates_total") >= 2

            # Each was in traffic before the next; the agent counts it a moment later.
            await until(counted)
        await told(cluster, kind, "Programmed")
        assert (await shown(installation, f"edge/{kind}"))[1:6] == [
            "lb-1",
            host["server"],
            "",
            (await told(cluster, kind, "Programmed"))["version"],
            "True",
        ]

        await cluster.delete(resources.SERVICES, "app", "edge")

        async def nobody() -> bool:
            return (await web(8080))[0] == 503

        await until(nobody)

        async def missed() -> dict[str, Any]:
            found = await cluster.get(resources.EXTERNAL_LOAD_BALANCERS, kind, "edge")
            accepted = next(c for c in found["status"]["conditions"] if c["type"] == "Accepted")
            return {} if accepted["reason"] == "Accepted" else {**accepted, **found["status"]}

        # Envoys have it sooner than the status is written.
        await until(missed)
        accepted = await missed()
        assert (accepted["status"], accepted["reason"]) == ("True", "UpstreamMissing")
        assert "spec.listeners[0]: no port of a Service is upstream http/web" in accepted["message"]
        assert accepted["upstreams"] == []


async def shown(installation: Installation, name: str) -> list[str]:
    """Give the row of a load balancer in `gatehouse status lb`."""
    env = environment(KUBECONFIG=str(installation.kubeconfig), COLUMNS="220")
    env["PYTHONPATH"] = str(ROOT / "src")
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "gatehouse", "status", "lb"),
        env=env,
        stdout=asyncio.subprocess.PIPE,
    )
    out, _ = await process.communicate()
    (row,) = [line for line in out.decode().splitlines() if name in line]
    return [cell.strip() for cell in row.split("│")[1:-1]]


@pytest.mark.parametrize("kind", ["nginx", "envoy"])
async def test_a_machine_that_was_away_serves_what_it_had_and_catches_up(
    cluster: kube.Client, authority: Path, place: Path, kind: str
) -> None:
    machine = Machine(place, "lb-1", OUTSIDE, kind)
    machine.certify(authority, f"edge/{kind}")
    asked = balancer(kind, kind, ("lb-1", "lb-2"), listeners(8090))
    await cluster.create(resources.EXTERNAL_LOAD_BALANCERS, asked)
    await cluster.create(resources.SERVICES, service())
    async with node(1, place), node(2, place):
        async with machine.running():
            said = await told(cluster, kind, "HostsFailing", "lb-2: its agent is not connected")
            assert said["hostsInStep"] == "1/2"
            assert await web(8090) == (200, "node-1")
        await told(cluster, kind, "HostsFailing", "2 of 2 hosts")
        await join(cluster, 2)
        await cluster.delete(resources.NODES, "n1")
        await cluster.patch(
            resources.EXTERNAL_LOAD_BALANCERS, kind, {"spec": {"hosts": [{"name": "lb-1"}]}}, "edge"
        )
        async with machine.running():
            said = await told(cluster, kind, "Programmed")
            assert said["hostsInStep"] == "1/1"
            assert await web(8090) == (200, "node-2")


async def test_several_machines_serve_the_same_and_each_is_told_of(
    cluster: kube.Client, authority: Path, place: Path
) -> None:
    # Envoys share a port, so that one address can stand for two machines.
    one, two = (Machine(place, name, OUTSIDE, "envoy") for name in ("lb-1", "lb-2"))
    for machine in (one, two):
        machine.certify(authority, "edge/pair")
    asked = balancer("pair", "envoy", ("lb-1", "lb-2"), listeners(8180))
    await cluster.create(resources.EXTERNAL_LOAD_BALANCERS, asked)
    await cluster.create(resources.SERVICES, service())
    async with node(1, place), node(2, place), one.running():
        async with two.running():
            said = await told(cluster, "pair", "Programmed")
            assert said["hostsInStep"] == "2/2"
            assert [host["version"] for host in said["hosts"]] == [said["version"]] * 2
            await cluster.delete(resources.NODES, "n1")
            await join(cluster, 2)

            async def moved() -> bool:
                return await backends(8180) == {"node-2"}

            await until(moved)
            said = await told(cluster, "pair", "Programmed")
            assert [host["version"] for host in said["hosts"]] == [said["version"]] * 2
        said = await told(cluster, "pair", "HostsFailing", "1 of 2 hosts: lb-2: its agent is not")
        assert said["hostsInStep"] == "1/2"
        assert await backends(8180) == {"node-2"}


async def test_what_a_machine_cannot_serve_is_told_in_its_proxy_s_words(
    cluster: kube.Client, authority: Path, place: Path
) -> None:
    machine = Machine(place, "lb-1", OUTSIDE)
    machine.certify(authority, "edge/taken")
    holder = await asyncio.start_server(lambda _, w: w.close(), FRONT, 8100)
    asked = balancer("taken", "nginx", ("lb-1",), listeners(8100))
    await cluster.create(resources.EXTERNAL_LOAD_BALANCERS, asked)
    await cluster.create(resources.SERVICES, service())
    async with holder, node(1, place), machine.running():
        words = f"bind() to {FRONT}:8100 failed (98: Address"
        said = await told(cluster, "taken", "HostsFailing", words)
        assert words in said["hosts"][0]["error"]
        holder.close()
        await told(cluster, "taken", "Programmed")
        assert await web(8100) == (200, "node-1")


async def test_a_machine_with_another_proxy_than_asked_for_is_told_of(
    cluster: kube.Client, authority: Path, place: Path
) -> None:
    machine = Machine(place, "lb-1", OUTSIDE, "envoy")
    machine.certify(authority, "edge/other")
    asked = balancer("other", "nginx", ("lb-1",), listeners(8110))
    await cluster.create(resources.EXTERNAL_LOAD_BALANCERS, asked)
    async with machine.running():
        words = "lb-1: it runs another proxy than spec.type: nginx"
        await told(cluster, "other", "HostsFailing", words)


async def test_the_example_of_the_documentation_is_served(
    cluster: kube.Client, authority: Path, place: Path
) -> None:
    text = (ROOT / "examples" / "load-balancer-machines.yaml").read_text()
    port = free_port()
    changed = {"8088": str(port), "8089": str(free_port()), "127.0.0.1": NODES[1]}
    for written, here in changed.items():
        text = text.replace(written, here)
    _namespace, *objects = yaml.safe_load_all(text)
    await apply(cluster, objects)
    settings = (ROOT / "examples" / "agent-outside.yaml").read_text().replace("lb-1/", f"{place}/")
    settings = settings.replace("16445", str(OUTSIDE)).replace("9113", str(free_port()))
    (place / "agent.yaml").write_text(settings)
    words = ["agent", "lb-1", "--for-load-balancer", "edge/front", "--dir", str(authority)]
    assert CliRunner().invoke(certs, [*words, "--out", str(place)]).exit_code == 0
    arguments = ("--config", str(place / "agent.yaml"))
    async with (
        echo.serve({(NODES[1], 30080): "app"}),
        agent({}, place / "agent.log", *arguments),
        aiohttp.ClientSession() as session,
    ):
        await told(cluster, "front", "Programmed")
        async with session.get(f"http://127.0.0.1:{port}/") as response:
            assert (response.status, response.headers["X-Backend"]) == (200, "app")
    await cluster.delete(resources.NODES, "node-1")


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"hosts": [{"url": "http://a/api"}]}, "machines of the other types a name"),
        ({"hosts": [{"name": "a", "url": "http://a"}]}, "either a url or a name"),
        ({"hosts": [{"name": "a"}, {"name": "a"}]}, "a host may be named once"),
        ({"hosts": [{"name": "a/b"}]}, "spec.hosts[0].name"),
        ({"listeners": None}, "listeners are needed"),
        ({"listeners": []}, "spec.listeners"),
        (
            {"listeners": [{"port": 0, "protocol": "TCP", "upstream": "a"}]},
            "spec.listeners[0].port",
        ),
        ({"listeners": [{"port": 1, "protocol": "SCTP", "upstream": "a"}]}, "protocol"),
        (
            {"listeners": [{"port": 1, "protocol": "TCP", "upstream": "a", "hostname": "a.b"}]},
            "hostname is for HTTP and TLS",
        ),
        (
            {"listeners": [{"port": 1, "protocol": "HTTP", "upstream": "a", "hostname": "a;b"}]},
            "spec.listeners[0].hostname",
        ),
        ({"listeners": [{"port": 1, "protocol": "HTTP", "upstream": "a"}] * 2}, "Duplicate value"),
        ({"tls": {}}, "are for type nginx-plus"),
        ({"parameters": {"weight": 2}}, "are for type nginx-plus"),
        ({"drainSeconds": 3}, "are for type nginx-plus"),
        ({"type": "nginx-plus", "hosts": [{"url": "http://a"}]}, "NGINX Plus has its own"),
    ],
)
async def test_what_cannot_be_is_refused_by_the_definition(
    cluster: kube.Client, spec: dict[str, Any], words: str
) -> None:
    made = balancer("wrong", "nginx", ("lb-1",), listeners(8160))
    del made["spec"]["bindAddress"]
    made["spec"] |= spec
    made["spec"] = {key: value for key, value in made["spec"].items() if value is not None}
    with pytest.raises(kube.Invalid) as refusal:
        await cluster.create(resources.EXTERNAL_LOAD_BALANCERS, made)
    assert words in str(refusal.value)


async def test_the_type_cannot_change(cluster: kube.Client) -> None:
    made = balancer("fixed", "nginx", ("lb-1",), listeners(8170))
    await cluster.create(resources.EXTERNAL_LOAD_BALANCERS, made)
    with pytest.raises(kube.Invalid) as refusal:
        change = {"spec": {"type": "envoy"}}
        await cluster.patch(resources.EXTERNAL_LOAD_BALANCERS, "fixed", change, "edge")
    assert "the type of a load balancer cannot change" in str(refusal.value)


class Caller:
    """Calls the channel for machines with a certificate, or without one."""

    def __init__(self, trust: Path, shown: tuple[Path, Path] | None, port: int = OUTSIDE) -> None:
        pair = (shown[1].read_bytes(), shown[0].read_bytes()) if shown else ()
        self._credentials = grpc.ssl_channel_credentials(trust.read_bytes(), *pair)
        self._port = port

    async def refused(self, token: str = "not a token", digest: str = "") -> tuple[str, str]:
        names = (("grpc.ssl_target_name_override", SERVER_NAME),)
        async with grpc.aio.secure_channel(
            f"127.0.0.1:{self._port}", self._credentials, names
        ) as channel:
            caller = Claimant(channel, token, {})
            with pytest.raises(grpc.aio.AioRpcError) as error:
                await (caller.file(digest) if digest else caller.connect())
            return error.value.code().name, error.value.details() or ""


def issued(
    authority: Path, directory: Path, uri: str, now: datetime | None = None
) -> tuple[Path, Path]:
    pair = pki.Pair(directory / "own.crt", directory / "own.key")
    ca = pki.Pair(authority / "ca.crt", authority / "ca.key")
    pki.issue(ca, pki.Leaf("own", "", uri=uri), pair, now or datetime.now(UTC))
    return pair.cert, pair.key


async def test_nobody_else_comes_in(
    cluster: kube.Client, authority: Path, place: Path, installation: Installation
) -> None:
    trust = authority / "ca.crt"
    asked = balancer("closed", "nginx", ("lb-1",), listeners(8120))
    await cluster.create(resources.EXTERNAL_LOAD_BALANCERS, asked)
    mine = Name("edge", "closed", "lb-1").uri
    closed = ("UNAVAILABLE",)

    async def known() -> bool:
        code, _ = await Caller(trust, issued(authority, place, mine)).refused(digest="nothing")
        return code == "NOT_FOUND"

    await until(known)
    # Without a certificate, or with one of another authority, or an old one: not even a handshake.
    token, _ = await cluster.create_token("default", "default", [SERVER_NAME], 600)
    assert (await Caller(trust, None).refused(token))[0] in closed
    strange = place / "strange"
    strange.mkdir()
    pki.ensure_channel(strange, ["x"], [], datetime.now(UTC))
    assert (await Caller(trust, issued(strange, place, mine)).refused(token))[0] in closed
    old = datetime.now(UTC) - pki.LEAF_LIFE - timedelta(minutes=1)
    assert (await Caller(trust, issued(authority, place, mine, old)).refused())[0] in closed
    # Certificates of the authority that are no machine's.
    code, words = await Caller(trust, (authority / "node.crt", authority / "node.key")).refused()
    assert (code, "not one URI" in words) == ("UNAUTHENTICATED", True)
    code, words = await Caller(trust, issued(authority, place, "spiffe://other/x")).refused(token)
    assert (code, "is not of the form" in words) == ("UNAUTHENTICATED", True)
    # Machines that nobody asked for.
    for uri in (Name("edge", "closed", "lb-9").uri, Name("edge", "none", "lb-1").uri):
        code, words = await Caller(trust, issued(authority, place, uri)).refused()
        assert (code, "has no host" in words) == ("UNAVAILABLE", True)
    # On the channel of Pods a certificate says nothing.
    port = int((installation.state / "addresses.json").read_text().rpartition(":")[2].strip('"}'))
    code, words = await Caller(trust, issued(authority, place, mine), port).refused()
    assert code == "UNAUTHENTICATED"
    # To the API server it is nobody.
    context = ssl.create_default_context(cafile=str(trust))
    context.load_cert_chain(*issued(authority, place, mine))
    server = cluster_url(installation)
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"{server}/api/v1/namespaces/edge/services", ssl=context) as response,
    ):
        assert response.status == 401


def cluster_url(installation: Installation) -> str:
    text = installation.kubeconfig.read_text()
    return text.partition("server: ")[2].split()[0]


async def test_what_is_another_load_balancer_s_is_denied_and_told(
    cluster: kube.Client, authority: Path, place: Path
) -> None:
    await cluster.create(resources.SERVICES, service())
    for name, port in (("mine", 8130), ("theirs", 8140)):
        asked = balancer(name, "nginx", ("lb-1",), listeners(port))
        await cluster.create(resources.EXTERNAL_LOAD_BALANCERS, asked)
    machine = Machine(place, "lb-1", OUTSIDE)
    machine.certify(authority, "edge/theirs")
    async with machine.running():
        await told(cluster, "theirs", "Programmed")
        digest = digest_of(holding(machine.directory / "root" / "current" / "gatehouse", b":8140"))
        mine = issued(authority, place, Name("edge", "mine", "lb-1").uri)
        code, words = await Caller(authority / "ca.crt", mine).refused(digest=digest)
        assert (code, "a file of another Gateway" in words) == ("PERMISSION_DENIED", True)

        async def events() -> set[tuple[str, str]]:
            found = (await cluster.list(resources.EVENTS, "edge")).items
            said = {
                (each["involvedObject"]["name"], each["message"])
                for each in found
                if each["reason"] == "AgentRefused"
            }
            return said if len(said) == 2 else set()

        assert await until(events) == {
            ("mine", "Machine lb-1 asked for a file of another Gateway, and was refused."),
            (
                "theirs",
                "Machine lb-1 of ExternalLoadBalancer edge/mine asked for a file of this one, "
                "and was refused.",
            ),
        }


def holding(directory: Path, word: bytes) -> bytes:
    """Give the content of a file that has a word in it."""
    contents = (path.read_bytes() for path in directory.rglob("*") if path.is_file())
    return next(content for content in contents if word in content)


@pytest.mark.parametrize("kind", ["nginx", "envoy"])
async def test_a_machine_that_is_named_no_more_or_whose_certificate_ends_is_told_nothing_more(
    cluster: kube.Client, authority: Path, place: Path, kind: str
) -> None:
    machine = Machine(place, "lb-1", OUTSIDE, kind)
    machine.certify(authority, f"edge/{kind}")
    asked = balancer(kind, kind, ("lb-1",), listeners(8150))
    await cluster.create(resources.EXTERNAL_LOAD_BALANCERS, asked)
    await cluster.create(resources.SERVICES, service())

    async def named(*hosts: str) -> None:
        spec = {"spec": {"hosts": [{"name": host} for host in hosts]}}
        await cluster.patch(resources.EXTERNAL_LOAD_BALANCERS, kind, spec, "edge")

    async with node(1, place), machine.running():
        await told(cluster, kind, "Programmed")
        await named("lb-2")
        await logged(machine, f"ExternalLoadBalancer edge/{kind} has no host 'lb-1'")
        await cluster.delete(resources.NODES, "n1")
        # It goes on with what it had.
        assert await web(8150) == (200, "node-1")
        await join(cluster, 1)
        await named("lb-1")
        await told(cluster, kind, "Programmed")

    soon = datetime.now(UTC) - pki.LEAF_LIFE + timedelta(seconds=15)
    uri = Name("edge", kind, "lb-1").uri
    ca = pki.Pair(authority / "ca.crt", authority / "ca.key")
    pair = pki.Pair(machine.certificates / "tls.crt", machine.certificates / "tls.key")
    pki.issue(ca, pki.Leaf("tls", "", uri=uri), pair, soon)
    async with node(1, place), machine.running():
        await told(cluster, kind, "Programmed")
        await told(cluster, kind, "HostsFailing", "lb-1: its agent is not connected")
        assert await web(8150) == (200, "node-1")
        machine.certify(authority, f"edge/{kind}")
        await told(cluster, kind, "Programmed")
