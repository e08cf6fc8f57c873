"""Route selection: real NGINX against an oracle that evaluates the IR as specified."""

from __future__ import annotations

import http.client
import random
import re
import socket
import subprocess
from collections.abc import Iterator
from urllib.parse import parse_qsl, quote

import pytest

from fakes import patience
from fakes.loopback import free_port
from gatehouse.agent.nginx import binary as nginx_binary
from gatehouse.compiler.backends import nginx
from gatehouse.compiler.ir import gateway as ir_gateway
from gatehouse.compiler.ir import http as ir

pytestmark = pytest.mark.process

HOSTS = 40
REQUESTS = 60
PATHS = ("/", "/a", "/a/b", "/a/b/c", "/ab", "/x.y", "/v1/items", "/v22/items", "/sp ace")
REGEXES = ("/v[0-9]{1,2}/.*", "/a/[bc]", "/(x|y)\\.y", "/.*")
VALUES = ("v", "V", "v1", "a b", "x+y", "100%", "é", 'q"q', "$host", "a;b")
HEADERS = ("x-one", "x-two")
QUERIES = ("one", "two-three", "Ö")


class Case:
    """A virtual host with random routes, in the order of the Gateway API."""

    def __init__(self, number: int, source: random.Random) -> None:
        self.hostname = f"h{number}.example"
        routes = [self._route(index, source) for index in range(source.randint(1, 9))]
        self.routes = sorted(routes, key=_rank)

    @staticmethod
    def _route(index: int, source: random.Random) -> ir.Route:
        kind = source.choice(("exact", "prefix", "prefix", "regex"))
        path: ir.PathMatch
        if kind == "regex":
            path = ir.PathRegex(source.choice(REGEXES))
        else:
            value = source.choice(PATHS)
            path = ir.PathExact(value) if kind == "exact" else ir.PathPrefix(value)
        match = ir.Match(
            path,
            source.choice(("", "", "GET", "POST")),
            tuple(_named(name, source, VALUES[:5]) for name in HEADERS if source.random() < 0.3),
            tuple(_named(name, source, VALUES) for name in QUERIES if source.random() < 0.2),
        )
        return ir.Route(f"ns/r/{index}/0", match, ir.Redirect(hostname=f"route-{index}"))


def _named(name: str, source: random.Random, values: tuple[str, ...]) -> ir.ValueMatch:
    if source.random() < 0.2:
        return ir.ValueMatch(name, "v[0-9]?", regex=True)
    return ir.ValueMatch(name, source.choice(values))


def _rank(route: ir.Route) -> tuple[int, int, bool, int, int, str]:
    match = route.match
    kinds = (ir.PathExact, ir.PathRegex, ir.PathPrefix)
    length = len(match.path.value)
    return (
        kinds.index(type(match.path)),
        -length,
        not match.method,
        -len(match.headers),
        -len(match.query),
        route.name,
    )


def expected(
    case: Case, method: str, path: str, headers: dict[str, str], query: list[tuple[str, str]]
) -> str:
    for route in case.routes:
        match = route.match
        first: dict[str, str] = {}
        for name, value in query:
            first.setdefault(name, value)
        if (
            _path_holds(match.path, path)
            and match.method in ("", method)
            and all(_holds(item, headers.get(item.name)) for item in match.headers)
            and all(_holds(item, first.get(item.name)) for item in match.query)
        ):
            return f"route-{route.name.split('/')[2]}"
    return "404"


def _path_holds(match: ir.PathMatch, path: str) -> bool:
    match match:
        case ir.PathExact(value):
            return path == value
        case ir.PathPrefix(value):
            return value == "/" or path == value or path.startswith(f"{value}/")
        case ir.PathRegex(value):
            return re.fullmatch(value, path) is not None


def _holds(item: ir.ValueMatch, value: str | None) -> bool:
    if value is None:
        return False
    return bool(re.fullmatch(item.value, value)) if item.regex else item.value == value


@pytest.fixture(scope="module")
def cases() -> list[Case]:
    source = random.Random(20261120)
    return [Case(number, source) for number in range(HOSTS)]


@pytest.fixture(scope="module")
def port(cases: list[Case], tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    chosen = free_port()
    hosts = tuple(ir.VirtualHost(case.hostname, tuple(case.routes)) for case in cases)
    gateway = ir_gateway.GatewayConfiguration(
        "ns/gw", "127.0.0.1", (ir_gateway.Listener(chosen, "HTTP", hosts),)
    )
    binary = nginx_binary.probe_nginx(nginx_binary.find_nginx_binary(None))
    generated = nginx.NginxGenerator(nginx.NginxCapabilities.parse(str(binary.version))).generate(
        gateway
    )
    assert generated.unsupported == ()
    directory = tmp_path_factory.mktemp("nginx")
    for path, file in generated.file_set.files.items():
        (directory / path).parent.mkdir(parents=True, exist_ok=True)
        (directory / path).write_bytes(file.content)
    temp = "".join(
        f"{kind}_temp_path {directory}/{kind};"
        for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    (directory / "nginx.conf").write_text(
        f"daemon off; pid {directory}/pid; error_log stderr; events {{}}"
        f"http {{ access_log off; {temp} include gatehouse/http.conf; }}"
    )
    process = subprocess.Popen(
        [str(binary.path), "-p", str(directory), "-e", "stderr", "-c", f"{directory}/nginx.conf"]
    )

    def listens() -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", chosen)) == 0

    patience.wait_until(listens)
    yield chosen
    process.terminate()
    process.wait(patience.SECONDS)


def test_nginx_selects_the_specified_route(cases: list[Case], port: int) -> None:
    source = random.Random(7)
    connection = http.client.HTTPConnection("127.0.0.1", port)
    wrong: list[str] = []
    for case in cases:
        for _ in range(REQUESTS):
            method = source.choice(("GET", "GET", "POST"))
            path = source.choice((*PATHS, "/a/b/c/d", "/nothing"))
            headers = {name: source.choice(VALUES[:5]) for name in HEADERS if source.random() < 0.5}
            query = [
                (source.choice(QUERIES), source.choice(VALUES)) for _ in range(source.randint(0, 3))
            ]
            plus = source.random() < 0.5
            written = "&".join(
                f"{quote(name)}={quote(value, safe='').replace('%20', '+' if plus else '%20')}"
                for name, value in query
            )
            assert parse_qsl(written) == query
            target = quote(path) + (f"?{written}" if written else "")
            connection.request(method, target, headers={**headers, "Host": case.hostname})
            response = connection.getresponse()
            response.read()
            location = response.headers.get("Location", "")
            answer = location.split("/")[2].split(":")[0] if location else str(response.status)
            decision = expected(case, method, path, headers, query)
            if answer != decision:
                wrong.append(
                    f"{case.hostname} {method} {target} {headers}: {answer}, not {decision}"
                )
    connection.close()
    assert wrong == []
