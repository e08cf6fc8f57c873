"""Authorization servers of SecurityPolicies."""

from __future__ import annotations

from fakes.policy_manifests import GROUP, ROUTE, manifest
from fakes.security_policy_world import SERVED, World, assert_refused, http_route, policy, server


def test_server_of_another_namespace_needs_a_grant_for_the_policy() -> None:
    checked = policy("n/p", ROUTE, externalAuth=server("other"))
    world = World(checked)
    why = "spec.externalAuth.backendRef: Service other/s not allowed by any ReferenceGrant"
    assert world.conditions["p", "ResolvedRefs"] == ("RefNotPermitted", why)
    assert_refused(world)

    def grant(group: str, kind: str) -> str:
        source = {"group": group, "kind": kind, "namespace": "n"}
        spec = {"from": [source], "to": [{"group": "", "kind": "Service"}]}
        return manifest(f"{GROUP}/v1beta1", "ReferenceGrant", "other/g", spec=spec)

    assert_refused(World(checked, grant(GROUP, "HTTPRoute")))
    assert_refused(World(checked, grant(GROUP, "SecurityPolicy")))
    granted = World(checked, grant("gatehouse.dev", "SecurityPolicy"))
    assert granted.conditions["p", "ResolvedRefs"][0] == "ResolvedRefs"
    assert granted.route().external_auth is not None


def test_headers_of_the_server_come_from_no_client_on_other_routes() -> None:
    world = World(
        http_route("n/open", SERVED),
        http_route("other/open", {"backendRefs": [{"name": "s", "port": 80}]}),
        policy("n/p", ROUTE, externalAuth=server()),
    )
    assert world.route("n/open/0/0").request_headers.remove == ("x-user",)
    assert world.route("n/r/0/0").request_headers.remove == ()
    # Only the namespace of a Service decides which headers it trusts.
    assert world.route("other/open/0/0").request_headers.remove == ()
