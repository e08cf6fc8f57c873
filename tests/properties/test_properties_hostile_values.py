"""Properties of both back ends: values of users stay values, whatever they contain."""

from __future__ import annotations

import asyncio
import tempfile
from functools import cache
from pathlib import Path

import crossplane
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fakes import envoy_rules, envoys, nginx_check
from fakes.compiled_objects import CAPABLE_NGINX
from fakes.loopback import loopback_network
from gatehouse.compiler.backends import envoy, nginx
from gatehouse.compiler.ir import gateway as ir_gateway
from gatehouse.compiler.ir import http as ir
from gatehouse.compiler.ir.authentication import Authorization, Claim, Jwt, Requirement
from gatehouse.compiler.ir.settings import Attribute, RateLimit, RateLimits, Settings
from gatehouse.dataplane.file_set import FileSet
from gatehouse.dataplane.origin import Origin

ENVOY = envoy.EnvoyCapabilities()

HOSTILE = st.text(
    alphabet=st.sampled_from(list("ab\"'\\;{}$ \n\r\t\0#()~*%\u00e9?&=,")), min_size=1, max_size=30
) | st.sampled_from(
    [
        "$host",
        "${host}",
        "a;}",
        '"',
        "\\",
        "\n}",
        "x" * 10_000,
        "%" * 10_000,
        "default",
        "include",
        "$" * 400,
        '"' * 2_100,
        "\\" * 2_100,
        "." * 1_500,
        r"\x{10FFFF}",
        r"\p{Kawi}",
        "x" * 256,
    ]
)


def served(value: str, place: str) -> ir_gateway.GatewayConfiguration:
    """Return a gateway with ``value`` in one of the fields that users control."""
    edit = ir.HeaderEdit(set=(ir.HeaderValue("X-A", value if place == "header" else "v"),))
    added = ir.HeaderEdit(add=(ir.HeaderValue("X-B", value if place == "added" else "v"),))
    name = value if place == "name" else "x-match"
    matched = value if place == "match" else "v"
    cors = ir.Cors(
        (value if place == "origin" else "https://a.example",),
        (value if place == "cors" else "GET",),
        expose=(value if place == "cors" else "x",),
    )
    session = ir.Persistence("cookie", value if place == "session" else "s")
    path = ir.PathPrefix("/" + value) if place == "path" else ir.PathPrefix("/p")
    rewrite = ir.FullPath("/" + value) if place == "rewrite" else ir.PrefixPath("/new")
    forward = ir.Forward(
        (ir.Backend("c-x", persistence=session),),
        ir.Rewrite(value if place == "hostname" else None, rewrite),
        mirrors=(ir.Mirror("c-x", 1, 3),),
        retry=ir.Retry(2, (500,)),
    )
    redirect = ir.Redirect(
        hostname=value if place == "redirect" else "h",
        path=ir.FullPath("/" + value if place == "location" else "/x"),
    )
    match = ir.Match(
        path,
        headers=(ir.ValueMatch(name, matched),),
        query=(ir.ValueMatch(value if place == "query" else "q", matched),),
    )
    key = (value if place == "rate" else "k", Attribute("remote_addr"))
    rates = RateLimits((RateLimit("a/p/0", key, 1, "second", 1 << 20),))
    claim = Claim(value if place == "claim" else "c", (value if place == "claimed" else "v",))
    tokens = Jwt(
        value if place == "realm" else "r", "keys", 0.0, Authorization((Requirement((claim,)),))
    )
    routes = (
        ir.Route("a/b/0/0", match, forward, edit, added, cors, Settings(rates=rates), tokens),
        ir.Route("a/b/1/0", ir.Match(ir.PathExact("/r")), redirect),
        ir.Route("a/b/2/0", ir.Match(ir.PathRegex(value if place == "regex" else "/x")), forward),
    )
    return ir_gateway.GatewayConfiguration(
        "a/b",
        listeners=(ir_gateway.Listener(8080, "HTTP", (ir.VirtualHost("h.example", routes),)),),
        l4_listeners=(
            ir_gateway.L4Listener(
                9443,
                "TLS",
                (
                    ir_gateway.L4Host(
                        value if place == "sni" else "t.example", (ir_gateway.L4Backend("c-x"),)
                    ),
                ),
            ),
        ),
        clusters=(ir.Cluster("c-x", (ir.Endpoint("10.0.0.1", 80),)),),
    )


def structure(bundle: FileSet) -> list[tuple[str, int]]:
    """Return the structure for a lexer: each file's directives by name, with their block depth."""
    result: list[tuple[str, int]] = []
    for path, file in bundle.files.items():
        depth, start = 0, True
        for token, _, quoted in crossplane.lexer._lex_file_object(file.content.decode()):
            if not quoted and token in ("{", "}", ";"):
                depth += {"{": 1, "}": -1, ";": 0}[token]
                start = True
            elif start:
                result.append((f"{path.count('/')} {token}", depth))
                start = False
        assert depth == 0
    return result


ABLE = nginx.NginxCapabilities((1, 31, 3), frozenset({"nginx-auth-jwt"}), named_endpoints=True)
PLACES = (
    "header", "added", "name", "match", "path", "rewrite", "hostname", "redirect", "location",
    "query", "regex", "origin", "cors", "session", "sni", "rate", "claim", "claimed", "realm",
)  # fmt: skip


@cache
def harmless() -> frozenset[str]:
    """Return the directives of values without any special character, and of values left out."""
    files = (
        nginx.NginxGenerator(ABLE).generate(of_many([(place, "v") for place in PLACES])).file_set
    )
    return frozenset(name for name, _ in structure(files)) | {"2 return", "2 ~", "2 default"}


@settings(max_examples=40, deadline=None)
@given(pairs=st.lists(st.tuples(st.sampled_from(PLACES), HOSTILE), min_size=1, max_size=40))
def test_hostile_values_never_change_the_structure(pairs: list[tuple[str, str]]) -> None:
    hostile = nginx.NginxGenerator(ABLE).generate(of_many(pairs))
    names = {name for name, _ in structure(hostile.file_set)}
    assert {name for name in names if not name.startswith(("2 ~", '2 "~', "2 \\"))} <= harmless()
    refused = {finding.origin.name for finding in hostile.unsupported}
    for number, (place, value) in enumerate(pairs):
        if any(ord(character) < 32 for character in value) and place not in ("name", "sni"):
            assert f"h{number}" in refused, (place, value)


KEYS = ir_gateway.SecretFile(
    "keys",
    ir_gateway.SecretBytes(b'{"keys": [{"kty": "oct", "alg": "HS256", "k": "c2VjcmV0c2VjcmV0"}]}'),
)


def of_many(pairs: list[tuple[str, str]]) -> ir_gateway.GatewayConfiguration:
    """Return a gateway with a hostname for each place and value."""
    hosts, streams = [], dict[str, ir_gateway.L4Host]()
    for number, (place, value) in enumerate(pairs):
        one = served(value, place)
        host = next(iter(one.listeners[0].virtual_hosts))
        routes = tuple(
            msgspec.structs.replace(route, origin=Origin("HTTPRoute", "n", f"h{number}"))
            for route in host.routes
        )
        hosts.append(msgspec.structs.replace(host, hostname=f"h{number}.example", routes=routes))
        stream = next(iter(one.l4_listeners[0].hosts))
        streams[stream.hostname] = stream
    return msgspec.structs.replace(
        one,
        bind_address=f"{loopback_network()}.1",
        listeners=(msgspec.structs.replace(one.listeners[0], virtual_hosts=tuple(hosts)),),
        l4_listeners=(
            msgspec.structs.replace(
                one.l4_listeners[0], hosts=tuple(streams[name] for name in sorted(streams))
            ),
        ),
        secrets=(KEYS,),
    )


@settings(max_examples=30, deadline=None)
@given(pairs=st.lists(st.tuples(st.sampled_from(PLACES), HOSTILE), min_size=1, max_size=40))
def test_hostile_values_keep_the_lengths_that_envoy_allows(pairs: list[tuple[str, str]]) -> None:
    generated = envoy.EnvoyGenerator(ENVOY).generate(of_many(pairs))
    assert envoy_rules.violations(generated.resources) == []


@pytest.mark.process
@settings(max_examples=3, deadline=None)
@given(pairs=st.lists(st.tuples(st.sampled_from(PLACES), HOSTILE), min_size=1, max_size=300))
def test_envoy_treats_hostile_values_as_values(pairs: list[tuple[str, str]]) -> None:
    async def check_generated() -> None:
        # Whatever one hostname's routes contain, the others and the listeners must exist.
        all_pairs = [*pairs, *((place, "v") for place in PLACES)]
        generated = envoy.EnvoyGenerator(ENVOY).generate(of_many(all_pairs))
        with tempfile.TemporaryDirectory(prefix="ghp-") as directory:
            async with envoys.running(Path(directory)) as running:
                running.ads.publish(generated.resources)
                await running.ads.settled()
                assert [message[:500] for message in running.ads.refused] == []
                assert running.process.returncode is None

    asyncio.run(check_generated())


@pytest.mark.process
@settings(max_examples=3, deadline=None)
@given(pairs=st.lists(st.tuples(st.sampled_from(PLACES), HOSTILE), min_size=1, max_size=300))
def test_nginx_reads_hostile_values(pairs: list[tuple[str, str]]) -> None:
    generated = nginx.NginxGenerator(CAPABLE_NGINX).generate(of_many(pairs))
    with tempfile.TemporaryDirectory() as directory:
        result = nginx_check.check(generated.file_set, Path(directory))
    assert result.accepted, result.output[-500:]
