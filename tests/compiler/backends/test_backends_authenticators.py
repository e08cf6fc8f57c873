"""Routes that require an authenticator, on agents without one."""

from __future__ import annotations

import pytest

from fakes.origins import match_of
from gatehouse.compiler.backends import nginx
from gatehouse.compiler.ir import gateway as ir_gateway
from gatehouse.compiler.ir import http as ir
from gatehouse.compiler.ir.authentication import Oidc
from gatehouse.sidecars.authenticator import config

ISSUER = "https://id.example"
USERS = Oidc(
    filter="a/users",
    issuer=ISSUER,
    metadata_url=ISSUER,
    client_id="web",
    secret="s",
    callback="/cb",
)
ROUTE = ir.Route(
    "a/b/0/0", ir.Match(), ir.Redirect(), authentication=USERS, origin=match_of("a/b/0/0")
)
GATEWAY = ir_gateway.GatewayConfiguration(
    "shop/web", listeners=(ir_gateway.Listener(8080, "HTTP", (ir.VirtualHost("", (ROUTE,)),)),)
)


@pytest.mark.parametrize("module", [True, False])
@pytest.mark.parametrize("authenticators", [True, False])
def test_requests_are_rejected_without_authenticator(module: bool, authenticators: bool) -> None:
    modules = ("http_auth_request_module",) if module else ()
    capabilities = nginx.NginxCapabilities.parse("1.31.3", modules, authenticators=authenticators)
    generated = nginx.NginxGenerator(capabilities).generate(GATEWAY)
    able = module and authenticators
    assert {item.origin for item in generated.unsupported} == (
        set() if able else {match_of("a/b/0/0")}
    )
    assert (config.AUTHENTICATORS_FILE in generated.file_set.files) is able
    (server,) = (
        file.content.decode()
        for path, file in generated.file_set.files.items()
        if "/servers/" in path and not path.endswith("default.conf")
    )
    assert ("auth_request " in server) is able
    assert ("return 302" in server) is able


def test_common_capabilities_require_authenticator_of_all_agents() -> None:
    able = nginx.NginxCapabilities.parse("1.31.3", authenticators=True)
    common = nginx.NginxCapabilities.common([able, nginx.NginxCapabilities.parse("1.31.3")])
    assert common is not None
    assert not common.authenticators
