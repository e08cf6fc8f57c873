"""Errors of the real NGINX are traced to the object that caused them."""

from __future__ import annotations

import base64
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from fakes.one_route import BACKEND, GATEWAY, engine
from fakes.upstream_worlds import authority
from gatehouse.agent.nginx import binary as nginx_binary
from gatehouse.compiler.backends import nginx
from gatehouse.compiler.backends.nginx import regex as nginx_regex
from gatehouse.compiler.frontends import gateway_api
from gatehouse.compiler.ir import gateway as ir
from gatehouse.compiler.ir.proxy_settings import NginxSettings, NginxUpstreamSettings
from gatehouse.compiler.ir.settings import DataPlaneSettings, UpstreamSettings
from gatehouse.compiler.ir.unsupported import Suspect
from gatehouse.dataplane.origin import Origin, port_origin
from gatehouse.incremental.query import Key

SLICE = ("EndpointSlice", "n", "s-1")
ENDPOINTS = {
    "metadata": {
        "name": "s-1", "namespace": "n", "labels": {"kubernetes.io/service-name": "s"},
    },
    "addressType": "IPv4",
    "ports": [{"name": "p", "port": 8080, "protocol": "TCP"}],
    "endpoints": [{"addresses": ["127.0.0.1"], "conditions": {"ready": True}}],
}  # fmt: skip

pytestmark = pytest.mark.process

CAPABILITIES = nginx.NginxCapabilities.parse("1.31.3", ("http_v2_module", "http_ssl_module"))
Rule = dict[str, Any]

WIDE = r"/\x{263a}"
"""An expression that RE2 accepts. NGINX matches bytes, and rejects it."""


@pytest.fixture(autouse=True)
def unchecked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Accept expressions that an NGINX rejects, as with an NGINX of other tables."""
    monkeypatch.setattr(nginx_regex, "checked", lambda pattern, _what: pattern)


GOOD: list[Rule] = [
    {
        "matches": [{"path": {"value": f"/good-{number}"}}],
        "backendRefs": [BACKEND],
    }
    for number in range(9)
]
"""Rules around the bad one."""


def compiled(
    rule: Rule, *others: tuple[Key, dict[str, Any]], secrets: Mapping[Key, Any] | None = None
) -> ir.GatewayConfiguration:
    """Compile a route whose fifth rule is ``rule``."""
    compiler = engine("HTTPRoute", [*GOOD[:4], rule, *GOOD[4:]], *others)
    compiler.commit(secrets or {})
    compiler.commit({SLICE: gateway_api.decode_gateway_api_object("EndpointSlice", ENDPOINTS)})
    settings = gateway_api.ControllerSettings(bind="any", snippets=True)
    compiler.commit({gateway_api.SETTINGS_KEY: settings})
    with compiler.compile() as ask:
        gateway = ask(gateway_api.compile_gateway, GATEWAY)
    assert gateway is not None
    return gateway


def error_of(gateway: ir.GatewayConfiguration, directory: Path) -> str:
    """Return the message of NGINX about a configuration, as an agent reports it."""
    generated = nginx.NginxGenerator(CAPABILITIES).generate(gateway)
    assert not generated.unsupported, generated.unsupported
    for path, file in generated.file_set.files.items():
        (directory / path).parent.mkdir(parents=True, exist_ok=True)
        (directory / path).write_bytes(file.content)
    main = "include gatehouse/main.conf;" if (directory / "gatehouse/main.conf").exists() else ""
    (directory / "nginx.conf").write_text(
        f"pid {directory}/pid; {main} events {{}} http {{ include gatehouse/http.conf; }}"
    )
    command = [
        str(nginx_binary.find_nginx_binary(None)),
        "-t",
        "-q",
        "-e",
        "stderr",
        "-p",
        str(directory),
    ]
    done = subprocess.run(
        [*command, "-c", str(directory / "nginx.conf")],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode, "NGINX accepts it"
    return done.stderr


def rule(**more: Any) -> Rule:
    return {"matches": [{"path": {"value": "/bad"}}], "backendRefs": [BACKEND], **more}


def matching(**match: Any) -> Rule:
    return rule(matches=[{"path": {"value": "/bad"}} | match])


def regex(pattern: str) -> dict[str, str]:
    return {"type": "RegularExpression", "value": pattern}


ROUTE = Origin("HTTPRoute", "n", "r", "rules[4].matches[0]")
IN_MATCH = (Suspect(ROUTE, in_match=True),)

MATCHES = {
    "path": matching(path=regex(WIDE)),
    "header": matching(headers=[{"name": "x", **regex(WIDE)}]),
    "query parameter": matching(queryParams=[{"name": "x", **regex(WIDE)}]),
}


@pytest.mark.parametrize("case", MATCHES)
def test_expression_of_a_match_is_traced_to_the_match(case: str, tmp_path: Path) -> None:
    gateway = compiled(MATCHES[case])
    message = error_of(gateway, tmp_path)
    assert nginx.suspects(gateway, CAPABILITIES, message) == IN_MATCH


def snippet(context: str, value: str) -> dict[str, Any]:
    return {"snippets": [{"context": context, "value": value}]}


def filtered(name: str) -> Rule:
    reference = {"group": "gateway.nginx.org", "kind": "SnippetsFilter", "name": name}
    return rule(filters=[{"type": "ExtensionRef", "extensionRef": reference}])


@pytest.mark.parametrize("context", ["main", "http", "http.server", "http.server.location"])
def test_snippet_is_traced_to_its_filter(context: str, tmp_path: Path) -> None:
    key = ("SnippetsFilter", "n", "s")
    gateway = compiled(filtered("s"), (key, snippet(context, "no_such_directive on;")))
    message = error_of(gateway, tmp_path)
    assert nginx.suspects(gateway, CAPABILITIES, message) == (Suspect(Origin(*key)),)


@pytest.mark.parametrize("context", ["main", "http", "http.server", "http.server.location"])
def test_snippet_is_traced_to_its_policy(context: str, tmp_path: Path) -> None:
    key = ("SnippetsPolicy", "n", "s")
    target = {"group": "gateway.networking.k8s.io", "kind": "Gateway", "name": "gw"}
    spec = {"targetRefs": [target], **snippet(context, "no_such_directive on;")}
    gateway = compiled(rule(), (key, spec))
    message = error_of(gateway, tmp_path)
    assert nginx.suspects(gateway, CAPABILITIES, message) == (Suspect(Origin(*key)),)


@pytest.mark.parametrize("context", ["http", "http.server", "http.server.location"])
def test_unknown_variable_is_traced_to_the_snippets_that_use_it(
    context: str, tmp_path: Path
) -> None:
    """NGINX names no file for this error."""
    bad, other = ("SnippetsFilter", "n", "s"), ("SnippetsPolicy", "n", "other")
    target = {"group": "gateway.networking.k8s.io", "kind": "Gateway", "name": "gw"}
    good = {"targetRefs": [target], **snippet(context, "add_header X-Longer $nowhere_host;")}
    defined = snippet("http", "map $uri $nowhere_host { default 1; }")
    good["snippets"] += defined["snippets"] if context != "http" else []
    if context == "http":
        good["snippets"][0]["value"] += " map $uri $nowhere_host { default 1; }"
    gateway = compiled(
        filtered("s"), (bad, snippet(context, "add_header X-Bad a${nowhere}b;")), (other, good)
    )
    message = error_of(gateway, tmp_path)
    assert " in " not in message
    assert nginx.suspects(gateway, CAPABILITIES, message) == (Suspect(Origin(*bad)),)


def test_error_of_an_upstream_accuses_only_its_policy() -> None:
    proxy = Origin("NginxProxy", "n", "innocent")
    gateway = compiled(rule())
    settings = msgspec.structs.replace(gateway.settings, origins=(proxy,))
    gateway = msgspec.structs.replace(gateway, settings=settings)
    (cluster,) = gateway.clusters
    message = f"nginx: [emerg] bad in /x/gatehouse/upstreams/{cluster.name}.conf:2"
    assert nginx.suspects(gateway, CAPABILITIES, message) == ()
    policy = Origin("UpstreamSettingsPolicy", "n", "p")
    own = UpstreamSettings(
        nginx=NginxUpstreamSettings(memory=1),
        sources=(("nginx.memory", policy.field("zoneSize")),),
    )
    gateway = msgspec.structs.replace(
        gateway, clusters=(msgspec.structs.replace(cluster, settings=own),)
    )
    assert nginx.suspects(gateway, CAPABILITIES, message) == (Suspect(policy),)


def test_error_of_an_l4_listener_is_traced_to_its_route() -> None:
    route = Origin("TCPRoute", "n", "r")
    listener = ir.L4Listener(90, "TCP", (ir.L4Host("", origin=route),))
    gateway = ir.GatewayConfiguration("n/gw", l4_listeners=(listener,))
    message = "nginx: [emerg] bad in /x/gatehouse/streams/90-tcp.conf:3"
    assert nginx.suspects(gateway, CAPABILITIES, message) == (Suspect(route),)
    hosts = tuple(ir.L4Host(name, origin=route) for name in ("a.example", "b.example"))
    listener = ir.L4Listener(90, "TLS", hosts)
    gateway = ir.GatewayConfiguration("n/gw", l4_listeners=(listener,))
    message = message.replace("tcp", "tls")
    assert nginx.suspects(gateway, CAPABILITIES, message) == (Suspect(port_origin("n/gw", 90)),)


CREDENTIALS = ir.GatewayConfiguration(
    "n/gw",
    certificates=tuple(
        ir.Certificate(f"cert-{name}", b"", ir.SecretBytes(b""), Origin("Secret", "n", name))
        for name in "ab"
    ),
    trust_bundles=(ir.TrustBundle("ca-a", b"", (Origin("ConfigMap", "n", "a"),)),),
    secrets=(ir.SecretFile("auth-a", ir.SecretBytes(b""), Origin("Secret", "n", "users")),),
)


@pytest.mark.parametrize(
    ("message", "kind", "name", "credential"),
    [
        ('cannot load certificate "/x/gatehouse/tls/cert-b.crt": PEM', "Secret", "b", "cert-b"),
        ('SSL_CTX_load_verify_locations("gatehouse/tls/ca-a.pem")', "ConfigMap", "a", "ca-a"),
        ("authenticator: filter n/f: gatehouse/secrets/auth-a: PEM", "Secret", "users", "auth-a"),
    ],
)
def test_file_of_a_credential_is_traced_to_the_object_that_holds_it(
    message: str, kind: str, name: str, credential: str
) -> None:
    suspect = Suspect(Origin(kind, "n", name), credential=credential)
    assert nginx.suspects(CREDENTIALS, CAPABILITIES, message) == (suspect,)


@pytest.mark.parametrize(
    "quoted",
    [
        "in /x/gatehouse/servers/80-any-e3b0c442.conf:9 ",
        "/x/gatehouse/tls/cert-a.crt",
        "bind() to 0.0.0.0:80 failed",
    ],
)
def test_text_of_an_object_does_not_accuse_another(quoted: str, tmp_path: Path) -> None:
    """NGINX quotes unknown directives, which may look like the place of something else."""
    key = ("SnippetsFilter", "n", "s")
    gateway = compiled(filtered("s"), (key, snippet("http.server.location", f'"{quoted}" on;')))
    message = error_of(gateway, tmp_path)
    assert quoted in message
    gateway = msgspec.structs.replace(gateway, certificates=CREDENTIALS.certificates)
    assert nginx.suspects(gateway, CAPABILITIES, message) == (Suspect(Origin(*key)),)


@pytest.mark.parametrize(
    "pattern",
    [
        r"/bind() to x:80 failed\x{10FFFF}",
        r"/ in gatehouse/servers/80-any-e3b0c442.conf:9 \x{10FFFF}",
        r"/ in gatehouse/http.conf:1\x{10FFFF}",
        r"/gatehouse/tls/cert-a.crt\x{10FFFF}",
    ],
)
def test_expression_of_a_route_does_not_accuse_another_object(pattern: str, tmp_path: Path) -> None:
    """NGINX quotes the expression before its own place."""
    gateway = compiled(matching(path=regex(pattern)))
    message = error_of(gateway, tmp_path)
    assert "pcre" in message
    gateway = msgspec.structs.replace(gateway, certificates=CREDENTIALS.certificates)
    assert nginx.suspects(gateway, CAPABILITIES, message) == IN_MATCH


@pytest.mark.parametrize(
    "message",
    [
        'open() "/bind() to 0.0.0.0:80 failed" failed (2: No such file or directory)',
        'invalid value "[emerg] bind() to 0.0.0.0:80 failed"',
        'open() "/x in gatehouse/http.conf:1" failed (2: No such file or directory)',
        'invalid value "a" "gatehouse/tls/cert-a.crt"',
        'could not build "unknown "no_such" variable", ignored',
    ],
)
def test_quoted_text_of_a_message_without_a_place_accuses_nothing(message: str) -> None:
    gateway = msgspec.structs.replace(compiled(rule()), certificates=CREDENTIALS.certificates)
    for text in (
        message,
        f"nginx: [emerg] {message}",
        f"2026/01/02 00:00:00 [emerg] 7#7: {message}",
    ):
        assert nginx.suspects(gateway, CAPABILITIES, text) == ()


def test_only_the_emergency_among_several_lines_is_traced() -> None:
    message = (
        "nginx: [warn] conflicting name in /x/gatehouse/http.conf:1\n"
        "nginx: [emerg] bind() to 0.0.0.0:80 failed (98: Address already in use)\n"
        "nginx: configuration file /x/nginx.conf test failed"
    )
    suspect = Suspect(port_origin("n/gw", 80))
    assert nginx.suspects(compiled(rule()), CAPABILITIES, message) == (suspect,)


LIMITED = Origin("RateLimitPolicy", "n", "limits")


def test_zone_of_a_rate_limit_is_traced_to_its_policy_and_no_parameters(tmp_path: Path) -> None:
    target = {"group": "gateway.networking.k8s.io", "kind": "HTTPRoute", "name": "r"}
    limit = {"rate": "10r/s", "zoneSize": "1m", "key": "$uri"}
    spec = {"targetRefs": [target], "rateLimit": {"local": {"rules": [limit]}}}
    gateway = compiled(rule(), (("RateLimitPolicy", "n", "limits"), spec))
    proxy = Origin("NginxProxy", "n", "innocent")
    files = nginx.NginxGenerator(CAPABILITIES).generate(gateway).file_set.files
    lines = files["gatehouse/http.conf"].content.decode().splitlines()
    settings = DataPlaneSettings(nginx=NginxSettings(error_level="warn"), origins=(proxy,))
    gateway = msgspec.structs.replace(gateway, settings=settings)
    files = nginx.NginxGenerator(CAPABILITIES).generate(gateway).file_set.files
    own = files["gatehouse/http.conf"].content.decode().splitlines()
    zone = next(number for number, line in enumerate(own, 1) if "limit_req_zone" in line)
    (setting,) = (number for number, line in enumerate(own, 1) if line not in lines)
    common = next(number for number, line in enumerate(own, 1) if line and line in lines)
    traced = {
        number: nginx.suspects(gateway, CAPABILITIES, f"bad in /x/gatehouse/http.conf:{number}")
        for number in (zone, setting, common)
    }
    assert traced == {zone: (Suspect(LIMITED),), setting: (Suspect(proxy),), common: ()}


def test_ca_certificates_are_traced_to_their_config_map(tmp_path: Path) -> None:
    references = [{"group": "", "kind": "ConfigMap", "name": "ca"}]
    policy = {
        "targetRefs": [{"group": "", "kind": "Service", "name": "s"}],
        "validation": {"hostname": "s.example", "caCertificateRefs": references},
    }
    data = {"metadata": {}, "data": {"ca.crt": authority().pem.decode()}}
    held: dict[Key, Any] = {
        ("ConfigMap", "n", "ca"): gateway_api.decode_gateway_api_object("ConfigMap", data)
    }
    gateway = compiled(rule(), (("BackendTLSPolicy", "n", "p"), policy), secrets=held)
    (bundle,) = gateway.trust_bundles
    broken = msgspec.structs.replace(bundle, pem=b"no certificate")
    gateway = msgspec.structs.replace(gateway, trust_bundles=(broken,))
    message = error_of(gateway, tmp_path)
    suspect = Suspect(Origin("ConfigMap", "n", "ca"), credential=bundle.name)
    assert nginx.suspects(gateway, CAPABILITIES, message) == (suspect,)


def test_authentication_is_traced_to_its_filter() -> None:
    key = ("AuthenticationFilter", "n", "f")
    reference = {"group": "gateway.nginx.org", "kind": key[0], "name": key[2]}
    bad = rule(filters=[{"type": "ExtensionRef", "extensionRef": reference}])
    spec = {"type": "Basic", "basic": {"realm": "r", "secretRef": {"name": "users"}}}
    users = base64.b64encode(b"ann:x").decode()
    secret = gateway_api.decode_gateway_api_object(
        "Secret", {"metadata": {}, "data": {"auth": users}}
    )
    gateway = compiled(bad, (key, spec), secrets={("Secret", "n", "users"): secret})
    files = nginx.NginxGenerator(CAPABILITIES).generate(gateway).file_set.files
    path, number = next(
        (path, number)
        for path, file in files.items()
        for number, line in enumerate(file.content.decode(errors="replace").splitlines(), 1)
        if "auth_basic_user_file" in line
    )
    message = f"nginx: [emerg] bad in /x/{path}:{number}"
    assert nginx.suspects(gateway, CAPABILITIES, message) == (Suspect(Origin(*key)),)


def test_port_that_cannot_be_bound_is_traced_to_the_port() -> None:
    gateway = compiled(rule())
    message = "nginx: [emerg] bind() to 0.0.0.0:80 failed (98: Address already in use)"
    assert nginx.suspects(gateway, CAPABILITIES, message) == (Suspect(port_origin("n/gw", 80)),)
    assert nginx.suspects(gateway, CAPABILITIES, message.replace(":80", ":81")) == ()


@pytest.mark.parametrize(
    "message",
    [
        "",
        "nginx -t exited with status -9",
        'nginx: [emerg] unknown "gh_x" variable',
        "in /etc/nginx/nginx.conf:7",
        "in gatehouse/servers/none.conf:7",
        "in gatehouse/http.conf:100000",
    ],
)
def test_message_without_a_known_place_is_not_traced(message: str) -> None:
    assert nginx.suspects(compiled(rule()), CAPABILITIES, message) == ()
