"""Errors of the real NGINX are traced to the object that caused them."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from fakes.one_route import BACKEND, GATEWAY, engine
from gatehouse.agent.nginx import binary as nginx_binary
from gatehouse.compiler.backends import nginx
from gatehouse.compiler.frontends import gateway_api
from gatehouse.compiler.ir import gateway as ir
from gatehouse.compiler.ir.unsupported import Suspect
from gatehouse.dataplane.origin import Origin, of_port
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

CAPABILITIES = nginx.Capabilities.parse("1.31.3", ("http_v2_module", "http_ssl_module"))
Rule = dict[str, Any]

WIDE = r"/\x{263a}"
"""An expression that RE2 accepts. NGINX matches bytes, and rejects it."""

GOOD: list[Rule] = [
    {
        "matches": [{"path": {"value": f"/good-{number}"}}],
        "backendRefs": [BACKEND],
    }
    for number in range(9)
]
"""Rules around the bad one."""


def compiled(rule: Rule, *others: tuple[Key, dict[str, Any]]) -> ir.Gateway:
    """Compile a route whose fifth rule is ``rule``."""
    found = engine("HTTPRoute", [*GOOD[:4], rule, *GOOD[4:]], *others)
    found.commit({SLICE: gateway_api.decode("EndpointSlice", ENDPOINTS)})
    settings = gateway_api.Settings(bind="any", snippets=True)
    found.commit({gateway_api.SETTINGS_KEY: settings})
    with found.compile() as ask:
        gateway = ask(gateway_api.compile_gateway, GATEWAY)
    assert gateway is not None
    return gateway


def error_of(gateway: ir.Gateway, directory: Path) -> str:
    """Return the message of NGINX about a configuration, as an agent reports it."""
    generated = nginx.Generator(CAPABILITIES).generate(gateway)
    assert not generated.unsupported, generated.unsupported
    for path, file in generated.file_set.files.items():
        (directory / path).parent.mkdir(parents=True, exist_ok=True)
        (directory / path).write_bytes(file.content)
    main = "include gatehouse/main.conf;" if (directory / "gatehouse/main.conf").exists() else ""
    (directory / "nginx.conf").write_text(
        f"pid {directory}/pid; {main} events {{}} http {{ include gatehouse/http.conf; }}"
    )
    command = [str(nginx_binary.find(None)), "-t", "-q", "-e", "stderr", "-p", str(directory)]
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


def test_certificate_is_traced_to_its_secret() -> None:
    origins = Origin("Secret", "n", "a"), Origin("Secret", "n", "b")
    gateway = ir.Gateway(
        "n/gw",
        certificates=tuple(
            ir.Certificate(f"cert-{each.name}", b"", ir.SecretBytes(b""), each) for each in origins
        ),
    )
    message = 'cannot load certificate "/x/gatehouse/tls/cert-b.crt": PEM_read_bio() failed'
    assert nginx.suspects(gateway, CAPABILITIES, message) == (Suspect(origins[1]),)


def test_port_that_cannot_be_bound_is_traced_to_the_port() -> None:
    gateway = compiled(rule())
    message = "nginx: [emerg] bind() to 0.0.0.0:80 failed (98: Address already in use)"
    assert nginx.suspects(gateway, CAPABILITIES, message) == (Suspect(of_port("n/gw", 80)),)
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
