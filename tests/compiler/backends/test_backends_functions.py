"""Variables that locations share instead of maps of their own."""

from __future__ import annotations

import random
import re

import pytest

from fakes.compiled_objects import CAPABLE_NGINX
from gatehouse.compiler.backends.nginx import NginxGenerator, session_persistence
from gatehouse.compiler.backends.nginx.directives import Directive
from gatehouse.compiler.ir import gateway, http
from gatehouse.compiler.ir.settings import ClientSettings, Settings
from gatehouse.dataplane.file_set import FileSet

CORS = http.Cors(("*",))
SESSION = http.Persistence("cookie", "s")


def file_set(*routes: http.Route) -> FileSet:
    cluster = http.Cluster("c", (http.Endpoint("192.0.2.1", 80),))
    hosts = (http.VirtualHost("a.example", routes),)
    listener = gateway.Listener(80, "HTTP", hosts)
    configuration = gateway.GatewayConfiguration("n/g", listeners=(listener,), clusters=(cluster,))
    result = NginxGenerator(CAPABLE_NGINX).generate(configuration)
    assert not result.unsupported
    return result.file_set


def text(files: FileSet, name: str) -> str:
    (content,) = (file.content for path, file in files.files.items() if name in path)
    return content.decode()


def route(path: str, action: http.Action, **more: object) -> http.Route:
    return http.Route(f"n/r/0{path}", http.Match(http.PathExact(path)), action, **more)  # type: ignore[arg-type]


def forward(session: http.Persistence | None = None) -> http.Forward:
    return http.Forward((http.Backend("c", persistence=session),))


def test_cookie_is_the_first_of_its_exact_name() -> None:
    (pattern,) = (
        row.name[2:-1].replace("\\\\", "\\")
        for definition in session_persistence.SESSION_DEFINITIONS
        for row in definition.block or ()
        if isinstance(row, Directive) and "gh_cookie" in row.name
    )
    pattern = pattern.replace("(?<", "(?P<")
    rng = random.Random(9)
    hits = 0
    for _ in range(20_000):
        name = rng.choice(("s", "S", "a.b", "a*", "s s"))
        cookies = "".join(rng.choice((name, "s", "=", ";", " ", "; ", "x")) for _ in range(8))
        own = f"(?:^|;\\s*){re.escape(name)}=(?P<gh_cookie>[^;]*)"
        expected = re.search(own, cookies)
        actual = re.search(pattern, f"{name}\n{cookies}")
        assert (actual and actual["gh_cookie"]) == (expected and expected["gh_cookie"])
        hits += expected is not None
    assert hits > 1000


def test_definitions_exist_once_and_only_if_a_route_needs_them() -> None:
    added = http.HeaderEdit(add=(http.HeaderValue("X-A", "a"),))
    plain = text(file_set(route("/a", forward())), "http.conf")
    needed = text(
        file_set(
            route("/a", forward(), cors=CORS),
            route("/b", forward(), cors=http.Cors(("https://a.example",))),
            route("/c", forward(SESSION)),
            route("/d", forward(http.Persistence("header", "X-S"))),
            route("/e", forward(), request_headers=added),
        ),
        "http.conf",
    )
    for variable in ("$gh_cors_origin", "$gh_preflight", "$gh_session", "$gh_list"):
        assert f" {variable} {{" not in plain
        assert needed.count(f" {variable} {{") == 1


@pytest.mark.parametrize("more", [{"cors": CORS}, {}])
def test_response_413_has_the_headers_of_the_location(more: dict[str, http.Cors]) -> None:
    """NGINX checks the length of a body before it runs the ``set`` of the first location."""
    action = forward() if more else forward(SESSION)
    settings = Settings(client=ClientSettings(body_size=10))
    server = text(file_set(route("/a", action, settings=settings, **more)), "servers/80-a")
    first = server.index("client_max_body_size")
    assert server.index('location = "/a"') < server.index("location @") < first
