"""Traffic through a real Envoy with generated resources, and the scope of changes."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
from collections import Counter

import aiohttp
import jwt
import msgspec
import pytest

from fakes import patience
from fakes.durations import be_slow
from fakes.envoy_serving import backend, host, listening, plain, route_to, serving
from fakes.origins import match_of
from gatehouse.compiler.ir import http as ir
from gatehouse.compiler.ir.authentication import Authorization, Basic, Claim, Jwt, Requirement
from gatehouse.compiler.ir.gateway import SecretBytes, SecretFile
from gatehouse.compiler.ir.proxy_settings import EnvoyClientSettings
from gatehouse.compiler.ir.settings import (
    Attribute,
    ClientSettings,
    RateLimit,
    RateLimits,
    Settings,
)
from gatehouse.compiler.ir.unsupported import Unsupported
from gatehouse.dataplane.origin import Origin
from gatehouse.dataplane.xds.resources import CLUSTER_TYPE_URL, ENDPOINTS_TYPE_URL, SCOPE_TYPE_URL

USERS = Origin("AuthenticationFilter", "ns", "users", "basic.secretRef")

pytestmark = pytest.mark.process


def answers(name: str, status: int, path: str = "/") -> ir.VirtualHost:
    return host(name, ir.Route("ns/r/0/0", ir.Match(ir.PathPrefix(path)), ir.Respond(status)))


async def test_most_specific_hostname_is_selected_case_insensitively() -> None:
    hosts = [
        answers("a.example", 201), answers("*.example", 202), answers("*.b.example", 203),
        answers("", 204), answers("x.b.example", 205, "/only"),
    ]  # fmt: skip
    expected = {
        "a.example": 201, "A.Example": 201, "a.example:81": 201, "A.EXAMPLE:8080": 201,
        "z.example": 202, "Z.Z.EXAMPLE:1": 202, "y.b.example": 203, "b.example": 202,
        "example": 204, "[::1]:80": 204, "10.0.0.1": 204,
        # No other hostname serves what the most specific one does not have.
        "x.b.example": 404, "X.B.example:8080": 404,
    }  # fmt: skip
    async with serving(plain(hosts)) as served:
        assert {name: (await served.ask(name))[0] for name in expected} == expected
        assert (await served.ask("x.b.example", "/only"))[0] == 205


async def test_internal_headers_are_removed_in_both_directions() -> None:
    async with backend("one") as endpoint:
        hosts = [
            host("a.example", route_to("c")),
            answers("b.example", 201),
            host("*.w", route_to("c")),
        ]
        async with serving(plain(hosts, [ir.Cluster("c", (endpoint,))])) as served:
            sent = {"x-gh-scope": "8080/-/b.example", "x-envoy-upstream-rq-timeout-ms": "1"}
            for name in ("a.example", "x.w", "X.W"):
                status, headers, echo = await served.ask(name, headers=sent)
                received = {key for key, _ in echo["headers"]}
                assert status == 200
                assert not {
                    key for key in {*headers, *received} if key.startswith(("x-gh", "x-envoy"))
                }
                assert {"x-forwarded-for", "x-forwarded-proto", "x-forwarded-host"} <= received
                assert "x-request-id" not in received


async def test_values_are_never_expanded_as_formats() -> None:
    value = "%REQ(x-secret)% 100% %DOWNSTREAM_REMOTE_ADDRESS% %% \\1"
    edit = ir.HeaderEdit(set=(ir.HeaderValue("X-A", value),), add=(ir.HeaderValue("X-B", value),))
    route = route_to(
        "c", request_headers=edit, response_headers=edit,
        rewrite=ir.Rewrite(path=ir.FullPath("/\\1/%REQ(x)%")),
    )  # fmt: skip
    async with backend("one") as endpoint:
        gateway = plain([host("a.example", route)], [ir.Cluster("c", (endpoint,))])
        async with serving(gateway) as served:
            _, headers, echo = await served.ask("a.example", headers={"x-secret": "told"})
            received = dict(echo["headers"])
            assert [headers["x-a"], headers["x-b"], received["x-a"], received["x-b"]] == [value] * 4
            assert echo["target"] == "/%5C1/%25REQ(x)%25"


@pytest.mark.parametrize("name", ["a.example", "*.example", ""])
async def test_passwords_and_tokens_are_required_for_every_kind_of_hostname(name: str) -> None:
    hashed = base64.b64encode(hashlib.sha1(b"secret").digest()).decode()
    key = b"0123456789abcdef0123456789abcdef"
    encoded = base64.urlsafe_b64encode(key).rstrip(b"=").decode()
    keys = json.dumps({"keys": [{"kty": "oct", "alg": "HS256", "k": encoded}]}).encode()
    staff = Requirement((Claim("groups", ("staff",), header="X-Groups"),))
    routes = [
        route_to("c", "ns/b/0/0", "/basic",
           authentication=Basic("r", "users", USERS), origin=match_of("ns/b/0/0")),
        route_to("c", "ns/j/0/0", "/token", authentication=Jwt("r", "keys")),
        route_to("c", "ns/j/1/0", "/staff",
           authentication=Jwt("r", "keys", authorization=Authorization((staff,)))),
    ]  # fmt: skip
    files = (
        SecretFile("keys", SecretBytes(keys)),
        SecretFile("users", SecretBytes(f"me:{{SHA}}{hashed}\nyou:$2y$10$x\n".encode())),
    )

    def token(**claims: object) -> dict[str, str]:
        text = jwt.encode({"exp": 2**32, **claims}, key, "HS256")
        return {"Authorization": f"Bearer {text}"}

    basic = {"Authorization": "Basic " + base64.b64encode(b"me:secret").decode()}
    async with backend("one") as endpoint:
        gateway = plain([host(name, *routes)], [ir.Cluster("c", (endpoint,))], secrets=files)
        async with serving(gateway) as served:

            async def status(path: str, headers: dict[str, str]) -> int:
                return (await served.ask("a.example", path, headers=headers))[0]

            assert await status("/basic", {}) == 401
            assert await status("/basic", basic) == 200
            assert await status("/token", basic) == 401
            assert await status("/token", token()) == 200
            assert await status("/token", token(exp=1)) == 401
            assert await status("/staff", token(groups=["guests"])) == 403
            assert await status("/staff", token(groups=["guests", "staff"])) == 200
            request_headers = token(groups="staff") | {"X-Groups": "forged"}
            _, _, echo = await served.ask("a.example", "/staff", headers=request_headers)
            assert dict(echo["headers"])["x-groups"] == "staff"
            why = "users that cannot log in: 1. Envoy supports only {SHA} and {PLAIN} passwords"
            assert served.generated.unsupported == (
                Unsupported(match_of("ns/b/0/0"), why, served=True, setting=USERS),
            )
            [scope] = [
                e for e in served.generated.resources.by_type[SCOPE_TYPE_URL].values() if e.secret
            ]
            assert hashed not in repr(scope)


@pytest.mark.parametrize(
    ("claim", "value", "received"),
    [
        ("groups", "staff", "staff"),
        ("groups", ["staff", "a b"], "staff,a b"),
        ("groups", [1, True, ["x"]], '1,true,["x"]'),
        ("groups", [], None),
        ("groups", "", None),
        ("groups", None, None),
        ("level", 1700000000, "1700000000"),
        ("level", 0.5, "0.5"),
        ("level", True, "true"),
        ("address", {"b": 'say "hi"', "a": 1}, '{"a":1,"b":"say \\u0022hi\\u0022"}'),
        ("https://shop.example/roles", ["admin"], "admin"),
        ("groups", "one\r\nX-Evil: two", "one X-Evil: two"),
    ],
)
async def test_claim_header_has_text_value(claim: str, value: object, received: str) -> None:
    key = b"0123456789abcdef0123456789abcdef"
    encoded = base64.urlsafe_b64encode(key).rstrip(b"=").decode()
    keys = json.dumps({"keys": [{"kty": "oct", "alg": "HS256", "k": encoded}]}).encode()
    rules = Authorization((Requirement((Claim(claim, ("x",), header="X-Told"),), every=False),
                           Requirement((Claim("exp", ()),))), every=False)  # fmt: skip
    route = route_to("c", authentication=Jwt("r", "keys", authorization=rules))
    files = (SecretFile("keys", SecretBytes(keys)),)
    async with backend("one") as endpoint:
        configuration = plain(
            [host("a.example", route)], [ir.Cluster("c", (endpoint,))], secrets=files
        )
        async with serving(configuration) as served:
            text = jwt.encode({"exp": 2**32, claim: value}, key, "HS256")
            headers = {"Authorization": f"Bearer {text}", "X-Told": "forged"}
            status, _, echo = await served.ask("a.example", headers=headers)
            assert (status, dict(echo["headers"]).get("x-told")) == (200, received)


async def test_claim_leads_to_no_other_route() -> None:
    """Its checks would be skipped, as those of the first route were made."""
    member = Requirement((Claim("user", ("member",), header="x-user"),))
    tokens = Jwt("r", "keys", authorization=Authorization((member,)))

    def for_user(name: str, authentication: Basic | Jwt) -> ir.Route:
        match = ir.Match(headers=(ir.ValueMatch("x-user", name),))
        route = route_to(name, f"ns/{name}/0/0", authentication=authentication)
        return msgspec.structs.replace(route, match=match)

    key = b"a secret that signs the tokens of tests"
    encoded = base64.urlsafe_b64encode(key).decode()
    keys = json.dumps({"keys": [{"kty": "oct", "kid": "a", "k": encoded}]}).encode()
    claims = {"exp": 4102444800, "user": "member"}
    token = jwt.encode(claims, key, algorithm="HS256", headers={"kid": "a"})
    secrets = (
        SecretFile("keys", SecretBytes(keys)),
        SecretFile("users", SecretBytes(b"alice:{PLAIN}a\n")),
    )
    routes = (for_user("guest", tokens), for_user("member", Basic("r", "users")))
    async with backend("guests") as guests, backend("members") as members:
        clusters = [ir.Cluster("guest", (guests,)), ir.Cluster("member", (members,))]
        gateway = plain([host("a.example", *routes)], clusters, secrets=secrets)
        async with serving(gateway) as served:
            sent = {"Authorization": f"Bearer {token}", "x-user": "guest"}
            status, _, echo = await served.ask("a.example", headers=sent)
            assert (status, echo["service"]) == (200, "guests")
            assert ["x-user", "member"] in echo["headers"]


async def test_realm_comes_from_filter_or_backend() -> None:
    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = "HTTP/1.1 401 No\r\nWWW-Authenticate: Basic realm=own\r\nContent-Length: 0\r\n\r\n"
        while True:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(head.encode())

    realm = 'a "b" %REQ(x)% \\'
    users = SecretFile("users", SecretBytes(b"me:{PLAIN}secret\n"))
    routes = [
        route_to("c", "ns/b/0/0", "/asked", authentication=Basic(realm, "users")),
        route_to("c", "ns/b/1/0", "/open"),
    ]
    good = {"Authorization": "Basic " + base64.b64encode(b"me:secret").decode(), "x": "y"}
    async with listening(refuse) as endpoint:
        configuration = plain(
            [host("a.example", *routes)], [ir.Cluster("c", (endpoint,))], secrets=(users,)
        )
        async with serving(configuration) as served:
            _, headers, _ = await served.ask("a.example", "/asked", headers={"x": "y"})
            assert headers["www-authenticate"] == 'Basic realm="a \\"b\\" %REQ(x)% \\\\"'
            for path in ("/asked", "/open"):
                status, headers, _ = await served.ask("a.example", path, headers=good)
                assert (status, headers["www-authenticate"]) == (401, "Basic realm=own")


async def test_long_bodies_are_rejected_with_and_without_content_length() -> None:
    limited = Settings(
        client=ClientSettings(body_size=10, envoy=EnvoyClientSettings(whole_body=10))
    )
    async with backend("one") as endpoint:
        hosts = [host("*.example", route_to("c", settings=limited))]
        async with serving(plain(hosts, [ir.Cluster("c", (endpoint,))])) as served:

            async def chunks(number: int) -> object:
                for _ in range(number):
                    yield b"12345"

            async def status(data: object) -> int:
                return (await served.ask("a.example", method="POST", data=data))[0]

            assert await status(b"x" * 10) == 200
            assert await status(b"x" * 11) == 413
            assert await status(chunks(3)) == 413


async def test_rate_limit_applies_per_key_value() -> None:
    limit = RateLimit("ns/p/0", (Attribute("http_x_user"),), 1, "minute", 1 << 20, 1, None)
    limited = Settings(rates=RateLimits((limit,), status=429))
    route = ir.Route("ns/r/0/0", ir.Match(), ir.Respond(200), settings=limited)
    async with serving(plain([host("*.example", route)])) as served:

        async def status(user: str) -> int:
            return (await served.ask("a.example", headers={"X-User": user}))[0]

        assert [await status("me") for _ in range(3)] == [200, 200, 429]
        assert await status("you") == 200


async def test_response_for_unreachable_backends_follows_the_ir() -> None:
    broken = ir.Match(ir.PathPrefix("/broken"))
    routes = [
        ir.Route("ns/r/0/0", broken, ir.Respond(500)),
        route_to("idle", "ns/r/1/0", "/idle"),
        route_to("c", "ns/r/2/0", "/half", failing=1),
    ]
    async with backend("one") as endpoint:
        clusters = [ir.Cluster("c", (endpoint,)), ir.Cluster("idle", ())]
        async with serving(plain([host("a.example", *routes)], clusters)) as served:
            assert (await served.ask("a.example", "/broken"))[0] == 500
            assert (await served.ask("a.example", "/idle"))[0] == 503
            statuses = Counter([(await served.ask("a.example", "/half"))[0] for _ in range(60)])
            assert set(statuses) == {200, 500}


async def test_timeouts_and_retries_are_applied() -> None:
    calls: Counter[str] = Counter()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        path = head.split()[1]
        calls[path] += 1
        if path.startswith("/slow"):
            await be_slow(20)
        status = 200 if path == "/twice" and calls[path] > 2 else 503
        writer.write(b"HTTP/1.1 %d X\r\nConnection: close\r\nContent-Length: 0\r\n\r\n" % status)
        await writer.drain()
        writer.close()

    routes = [
        route_to("c", "ns/r/0/0", "/slow", request_timeout=0.2),
        route_to("c", "ns/r/1/0", "/slower", backend_timeout=0.2),
        route_to("c", "ns/r/2/0", "/slowest", backend_timeout=0.1, retry=ir.Retry(2)),
        route_to("c", "ns/r/3/0", "/twice", retry=ir.Retry(2, (503,))),
        route_to("c", "ns/r/4/0", "/once", retry=ir.Retry(2, (502,))),
    ]
    async with listening(answer) as endpoint:
        gateway = plain([host("a.example", *routes)], [ir.Cluster("c", (endpoint,))])
        async with serving(gateway) as served:
            statuses = {
                r: (await served.ask("a.example", r))[0] for r in ("/slow", "/slower", "/slowest")
            }
            assert statuses == {"/slow": 504, "/slower": 504, "/slowest": 504}
            assert calls["/slowest"] == 3
            assert (await served.ask("a.example", "/twice"))[0] == 200
            assert (await served.ask("a.example", "/once"))[0] == 503
            assert (calls["/twice"], calls["/once"]) == (3, 1)


@pytest.mark.parametrize("kind", ["cookie", "header"])
async def test_session_stays_on_its_endpoint(kind: str) -> None:
    async with backend("one") as one, backend("two") as two:
        session = ir.Persistence(kind, "X-Session", 60)  # type: ignore[arg-type]
        action = ir.Forward((ir.Backend("c", persistence=session),))
        hosts = [host("*.example", msgspec.structs.replace(route_to("c"), action=action))]
        async with serving(plain(hosts, [ir.Cluster("c", (one, two))])) as served:
            _, headers, first = await served.ask("a.example")
            if kind == "cookie":
                sent = {"Cookie": headers["set-cookie"].partition(";")[0]}
            else:
                sent = {"X-Session": headers["x-session"]}
            answers = [(await served.ask("a.example", headers=sent))[2] for _ in range(20)]
            assert {answer["service"] for answer in answers} == {first["service"]}
            others = [(await served.ask("a.example"))[2]["service"] for _ in range(20)]
            assert set(others) == {"one", "two"}


async def test_requests_are_mirrored() -> None:
    heads: asyncio.Queue[str] = asyncio.Queue()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.put_nowait((await reader.readuntil(b"\r\n\r\n")).decode())
        writer.write(b"HTTP/1.1 500 X\r\nContent-Length: 0\r\n\r\n")

    async with listening(answer) as copy, backend("one") as endpoint:
        clusters = [ir.Cluster("c", (endpoint,)), ir.Cluster("m", (copy,))]
        hosts = [host("a.example", route_to("c", mirrors=(ir.Mirror("m"),)))]
        async with serving(plain(hosts, clusters)) as served:
            assert (await served.ask("a.example", "/p?q=1"))[0] == 200
            head = await asyncio.wait_for(heads.get(), patience.SECONDS)
            assert head.startswith("GET /p?q=1 HTTP/1.1\r\nhost: a.example\r\n")


async def test_route_change_is_one_resource_and_closes_no_connection() -> None:
    async with backend("one") as one, backend("two") as two:
        hosts = [host(f"h{number}.example", route_to("c")) for number in range(20)]
        others = [ir.Cluster("c", (one,)), ir.Cluster("d", (two,))]
        async with serving(plain(hosts, others)) as served:
            url = f"http://{served.address}:8080/"
            opened: list[object] = []

            async def note(*about: object) -> None:
                opened.append(about)

            trace = aiohttp.TraceConfig()
            trace.on_connection_create_end.append(note)
            async with aiohttp.ClientSession(trace_configs=[trace]) as session:

                async def ask() -> object:
                    async with session.get(url, headers={"Host": "h7.example"}) as answer:
                        body = await answer.read()
                        return json.loads(body)["service"] if answer.status == 200 else None

                assert await ask() == "one"
                hosts[7] = host("h7.example", route_to("d"))
                assert await served.serve(plain(hosts, others)) == {
                    (SCOPE_TYPE_URL, "8080/-/h7.example")
                }

                async def moved() -> bool:
                    return await ask() == "two"

                await served.until(moved)
                others = [ir.Cluster("c", (one,)), ir.Cluster("d", (one,))]
                assert await served.serve(plain(hosts, others)) == {(ENDPOINTS_TYPE_URL, "d")}

                async def back() -> bool:
                    return await ask() == "one"

                await served.until(back)
                changed = await served.serve(plain(hosts[:7], others[:1]))
                assert changed == {
                    (CLUSTER_TYPE_URL, "d"), (ENDPOINTS_TYPE_URL, "d"),
                    *((SCOPE_TYPE_URL, f"8080/-/h{number}.example") for number in range(7, 20)),
                }  # fmt: skip

                async def gone() -> bool:
                    return await ask() is None

                await served.until(gone)
                assert len(opened) == 1
