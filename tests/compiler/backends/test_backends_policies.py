"""Policy settings as directives, and snippets that cannot close the block around them."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fakes.origins import match_of
from gatehouse.compiler.backends import nginx
from gatehouse.compiler.backends.nginx import snippets, traffic_settings
from gatehouse.compiler.ir import gateway, http
from gatehouse.compiler.ir.proxy_settings import Buffers, NginxResponseSettings, NginxSnippet
from gatehouse.compiler.ir.unsupported import Unsupported
from gatehouse.dataplane.origin import Origin

SIZES = st.none() | st.integers(1, 1 << 24)


@given(st.integers(1, 10**12), st.integers(0, 10**13))
def test_pattern_matches_only_longer_bodies(size: int, length: int) -> None:
    pattern = re.compile(traffic_settings.longer(size))
    for length_sent in (length, size - 1, size, size + 1):
        assert bool(pattern.match(str(length_sent))) == (length_sent > size)
        assert bool(pattern.match(f"000{length_sent}")) == (length_sent > size)


@given(SIZES, st.none() | st.builds(Buffers, st.integers(2, 256), st.integers(1, 1 << 20)), SIZES)
def test_buffer_sizes_are_consistent(
    head: int | None, buffers: Buffers | None, busy: int | None
) -> None:
    settings = NginxResponseSettings(buffer_size=head, buffers=buffers, busy_buffers_size=busy)
    made_head, sizes, made_busy = traffic_settings.sizes(settings)
    assert made_head == (head or traffic_settings.HEAD)
    assert sizes.size == (buffers or traffic_settings.BUFFERS).size
    assert max(made_head, sizes.size) <= made_busy < (sizes.number - 1) * sizes.size
    if busy is not None and busy >= max(made_head, sizes.size):
        assert made_busy == busy


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", ""),
        ("# nothing but a comment }", ""),
        ("add_header X y;", ""),
        ('add_header X "}";\nreturn 200 \'{ ; \\\' \';', ""),
        ("map $uri $x { default 1; ~^/(a|b){2}$ 2; }", "unterminated block"),
        ("set $x ${a; } server { listen 1;", "line 1: unexpected end of a block"),
        ("return 200 a};", ""),
        ("return 200 ${{a;", ""),
        ('map $uri $x { default 1; "~^/(a|b){2}$" 2; }', ""),
        ("set $a ${b};", ""),
        ("location /a { if ($b) { return 204; } }", ""),
        ("} server { listen 1; ", "line 1: unexpected end of a block"),
        ("add_header X y", "last directive must end with ;"),
        ("a b;\nlocation / {\n return 200;", "unterminated block"),
        ("a b;\nreturn 200 \"x;", "line 2: unterminated quoted string"),
        ("a b\\;c;", ""),
        ("location / { return 200 }", "line 1: unexpected }"),
        (";", "line 1: unexpected ;"),
        ("{ a b; }", "line 1: unexpected {"),
    ],
)  # fmt: skip
def test_snippet_must_be_complete_directives(text: str, problem: str) -> None:
    assert snippets.syntax_error(text) == problem


def test_route_with_invalid_snippet_is_not_served() -> None:
    snippet = NginxSnippet(Origin("SnippetsFilter", "ns", "s"), "http.server", "set $a b")
    broken = http.Route(
        "ns/r/0/0",
        http.Match(),
        http.Respond(204),
        snippets=(snippet,),
        origin=match_of("ns/r/0/0"),
    )
    other = http.Route("ns/o/0/0", http.Match(http.PathExact("/o")), http.Respond(204))
    host = http.VirtualHost("a.example", (other, broken))
    listener = gateway.Listener(80, "HTTP", (host,))
    generated = nginx.NginxGenerator(nginx.NginxCapabilities.parse("1.31.3")).generate(
        gateway.GatewayConfiguration("ns/gw", listeners=(listener,))
    )
    why = "SnippetsFilter ns/s: http.server: last directive must end with ;"
    assert generated.unsupported == (Unsupported(broken.origin, why),)
    (text,) = (f.content.decode() for p, f in generated.file_set.files.items() if "a.example" in p)
    assert text.count("return 500;") == 1
    assert "set $a" not in text
