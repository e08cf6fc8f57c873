"""UpstreamClusters at Gateways: attachment, hostname conflicts, credentials, limits."""

from __future__ import annotations

import msgspec
import pytest

from fakes.upstream_worlds import (
    EVERYTHING,
    GATEWAY,
    LISTENER,
    World,
    authority,
    b64,
    ca,
    pair,
)
from gatehouse.compiler.frontends import gateway_api
from gatehouse.compiler.frontends.inputs import record_key, replicas_key
from gatehouse.compiler.ir.kube_apiserver import AuthCacheTTLs, InFlight, TokenBucket
from gatehouse.incremental.query import Key

OLD, NEW = "2025-01-01T00:00:00Z", "2026-01-01T00:00:00Z"
HTTPS = [{"endpoint": "https://10.0.0.1:6443"}]


def attached(world: World, gateway: str = "gw") -> int:
    status = world.status(("Gateway", "ns", gateway))
    return int(status["listeners"][0]["attachedRoutes"])


def test_every_gateway_with_the_protocol_serves_a_cluster(world: World) -> None:
    key = world.cluster("a.example")
    world.gateway("other")
    world.gateway("web", listeners=[{"name": "web", "port": 80, "protocol": "HTTP"}])
    assert list(world.served()) == ["a.example"]
    assert list(world.served(("Gateway", "ns", "other"))) == ["a.example"]
    assert world.compiled(("Gateway", "ns", "web")).api_listeners == ()
    assert [attached(world, name) for name in ("gw", "other", "web")] == [1, 1, 0]
    names = [entry["gatewayRef"]["name"] for entry in world.status(key)["gateways"]]
    assert names == ["gw", "other"]


def test_annotation_selects_gateways(world: World) -> None:
    chosen = {"gatehouse.dev/gateways": "ns/other, ns/gone"}
    key = world.cluster("a.example", annotations=chosen)
    world.gateway("other")
    assert world.served() == {}
    assert list(world.served(("Gateway", "ns", "other"))) == ["a.example"]
    status, _, message = world.condition(key, "PartiallyInvalid")
    assert status == "True"
    assert "Gateway ns/gone has no listener with protocol" in message
    assert world.condition(key, "Accepted")[0] == "True"


def test_listener_without_the_kind_does_not_serve_clusters(world: World) -> None:
    key = world.cluster("a.example")
    world.gateway(listeners=[{**LISTENER, "allowedRoutes": {"kinds": [{"kind": "HTTPRoute"}]}}])
    assert world.compiled().api_listeners == ()
    assert world.condition(key, "Accepted")[:2] == ("False", "NoMatchingGateway")


def test_cluster_without_a_gateway_is_reported() -> None:
    world = World()
    key = world.cluster("a.example")
    assert world.condition(key, "Accepted")[:2] == ("False", "NoMatchingGateway")
    assert world.condition(key, "Programmed")[0] == "False"


def owned_by(world: World, key: Key) -> None:
    """Record that a cluster owns its hostnames."""
    status = world.gateway_status(key)
    world.engine.commit({record_key(key): status.next_record})


def test_hostname_passes_to_next_oldest_cluster_after_deletion(world: World) -> None:
    new = world.cluster("b.example", created=NEW, secureServing={"serverNames": ["X.example"]})
    old = world.cluster("a.example", created=OLD, secureServing={"serverNames": ["x.example"]})
    assert world.served()["a.example"].hosts == ("a.example", "x.example")
    assert world.served()["b.example"].hosts == ("b.example",)
    assert world.condition(new, "Conflicted") == (
        "True",
        "HostConflict",
        "hostname x.example already used by UpstreamCluster a.example",
    )
    assert world.condition(old, "Conflicted") == ("", "", "")
    world.delete(old)
    assert world.served()["b.example"].hosts == ("b.example", "x.example")
    assert world.condition(new, "Conflicted") == ("", "", "")


def test_first_by_name_owns_a_hostname_of_clusters_of_the_same_age(world: World) -> None:
    world.cluster("b.example", secureServing={"serverNames": ["x.example"]})
    world.cluster("a.example", secureServing={"serverNames": ["x.example"]})
    assert "x.example" in world.served()["a.example"].hosts


def test_cluster_that_loses_its_own_name_keeps_other_hostnames(world: World) -> None:
    owned_by(world, world.cluster("a.example", secureServing={"serverNames": ["b.example"]}))
    key = world.cluster("b.example", created=OLD, secureServing={"serverNames": ["c.example"]})
    assert world.served()["b.example"].hosts == ("c.example",)
    assert world.condition(key, "Accepted")[0] == "True"


def test_cluster_without_a_hostname_is_not_served(world: World) -> None:
    owned_by(world, world.cluster("a.example", secureServing={"serverNames": ["b.example"]}))
    key = world.cluster("b.example")
    assert "b.example" not in world.served()
    assert world.condition(key, "Accepted")[:2] == ("False", "NoHost")
    assert world.condition(key, "Programmed")[0] == "False"


def test_clusters_at_different_gateways_do_not_conflict(world: World) -> None:
    world.gateway("other")
    serving = {"serverNames": ["x.example"]}
    first, second = {"gatehouse.dev/gateways": "ns/gw"}, {"gatehouse.dev/gateways": "ns/other"}
    world.cluster("a.example", annotations=first, secureServing=serving)
    key = world.cluster("b.example", annotations=second, secureServing=serving)
    assert world.condition(key, "Conflicted") == ("", "", "")
    assert "x.example" in world.served()["a.example"].hosts
    assert "x.example" in world.served(("Gateway", "ns", "other"))["b.example"].hosts


def test_credentials_are_read_from_the_object(world: World) -> None:
    chain, private = pair("client")
    certificate_data, own = pair("server")
    world.cluster(
        "a.example",
        servers=HTTPS,
        clientConfig={"keyData": private, "certData": chain, "caData": ca()},
        secureServing={"keyData": own, "certData": certificate_data, "clientCAData": ca()},
    )
    gateway, cluster = world.compiled(), world.served()["a.example"]
    assert cluster.tls is not None
    assert cluster.tls.server_name == "a.example"
    named = {cluster.tls.certificate, *cluster.certificates}
    assert {certificate.name for certificate in gateway.certificates} == named
    assert len(named) == 2
    assert (
        [trust_bundle.name for trust_bundle in gateway.trust_bundles]
        == [cluster.tls.trust]
        == [cluster.client_trust]
    )
    assert gateway.trust_bundles[0].pem == authority().pem.rstrip() + b"\n"


def test_credentials_are_read_from_secrets_of_any_namespace_and_renewed(world: World) -> None:
    chain, private = pair("first")
    world.secret("s", tls_crt=chain, tls_key=private, ca_crt=ca(), token=b64(b"word\n"))
    reference = {"namespace": "ns", "name": "s"}
    key = world.cluster("a.example", servers=HTTPS, clientConfig={"secretRef": reference})
    world.cluster("b.example")
    before, clusters = world.compiled(), world.served()
    assert clusters["a.example"].tls is not None
    assert [secret.content.reveal() for secret in before.secrets] == [b"word"]
    assert clusters["a.example"].token == before.secrets[0].name
    assert world.condition(key, "ResolvedRefs")[0] == "True"
    chain, private = pair("second")
    world.secret("s", tls_crt=chain, tls_key=private, ca_crt=ca(), token=b64(b"other"))
    after = world.served()
    assert after["a.example"].tls != clusters["a.example"].tls
    assert after["a.example"].token != clusters["a.example"].token
    assert after["b.example"] is clusters["b.example"]
    assert after["a.example"].policies is clusters["a.example"].policies
    assert len(world.compiled().certificates) == 1


def test_credentials_in_the_object_override_the_secret(world: World) -> None:
    world.secret("s", ca_crt=b64(b"nonsense"), token=b64(b"word"))
    config = {"secretRef": {"namespace": "ns", "name": "s"}, "caData": ca()}
    key = world.cluster("a.example", servers=HTTPS, clientConfig=config)
    assert len(world.served()["a.example"].servers) == 1
    assert world.condition(key, "ResolvedRefs")[0] == "True"


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"secretRef": {"namespace": "ns", "name": "gone"}}, "Secret ns/gone not found"),
        ({"caData": b64(b"x"), "bearerToken": b64(b"t")}, "caData: must be PEM certificates"),
        ({"caData": "CA", "bearerToken": b64(b"a b")}, "bearerToken: must be a valid header value"),
        (
            {"caData": "CA", "bearerToken": b64(b"a\r\nX: y")},
            "bearerToken: must be a valid header value",
        ),
        ({"caData": "CA", "keyData": "KEY"}, "Config.keyData: certData must be set, too"),
        (
            {"caData": "CA", "keyData": b64(b"x"), "certData": "CRT"},
            "spec.clientConfig: keyData must be an unencrypted PEM key",
        ),
        (
            {"caData": "CA", "keyData": "OTHER", "certData": "CRT"},
            "spec.clientConfig: keyData does not match the first certificate of certData",
        ),
        ({"caData": "CA", "keyData": "!", "certData": "CRT"}, "Config.keyData: must be base64"),
        ({"caData": "!", "bearerToken": b64(b"t")}, "caData: must be base64"),
    ],
)
def test_servers_are_not_used_without_valid_credentials(
    world: World, config: dict[str, object], words: str
) -> None:
    chain, private = pair("client")
    known = {"CA": ca(), "KEY": private, "CRT": chain, "OTHER": pair("other")[1]}
    config = {name: known.get(str(value), value) for name, value in config.items()}
    key = world.cluster("a.example", servers=HTTPS, clientConfig=config)
    assert world.served()["a.example"].servers == ()
    assert world.served()["a.example"].hosts == ("a.example",)
    assert words in world.condition(key, "ResolvedRefs")[2]
    assert world.condition(key, "Accepted")[:2] == ("False", "Invalid")
    assert world.condition(key, "Programmed")[0] == "False"


def test_servers_are_unverified_only_without_ca_certificates(world: World) -> None:
    token = {"insecure": True, "bearerToken": b64(b"t")}
    world.cluster("a.example", servers=HTTPS, clientConfig=token)
    world.cluster("b.example", servers=HTTPS, clientConfig={**token, "caData": ca()})
    world.cluster("c.example", servers=HTTPS, clientConfig={**token, "caData": b64(b"x")})
    clusters = world.served()
    trusts = {
        name: cluster.tls.trust if cluster.tls else None for name, cluster in clusters.items()
    }
    assert trusts["a.example"] == ""
    assert trusts["b.example"]
    assert (len(clusters["a.example"].servers), len(clusters["c.example"].servers)) == (1, 0)


def test_gateway_ca_verifies_clients_unless_the_cluster_has_its_own(
    world: World,
) -> None:
    reference = {"group": "", "kind": "ConfigMap", "name": "ca"}
    world.put("ConfigMap", "ca", "ns", data={"ca.crt": authority().pem.decode()})
    validation = {"validation": {"caCertificateRefs": [reference]}}
    world.gateway(tls={"frontend": {"default": validation}})
    world.cluster("a.example")
    world.cluster("b.example", secureServing={"clientCAData": b64(b"nonsense")})
    world.cluster("c.example", secureServing={"secretRef": {"namespace": "ns", "name": "gone"}})
    clusters = world.served()
    assert clusters["a.example"].client_trust == world.compiled().trust_bundles[0].name
    # Authorities that cannot be read prove nothing; others must not take their place.
    assert clusters["b.example"].client_trust == ""
    assert clusters["c.example"].client_trust == ""


def test_listener_certificates_are_served_for_all_clusters(world: World) -> None:
    chain, private = pair("listener")
    world.secret("tls", tls_crt=chain, tls_key=private)
    world.gateway(listeners=[{**LISTENER, "tls": {"certificateRefs": [{"name": "tls"}]}}])
    world.cluster("a.example")
    gateway = world.compiled()
    assert gateway.api_listeners[0].certificates == tuple(
        certificate.name for certificate in gateway.certificates
    )
    assert gateway.api_listeners[0].clusters[0].certificates == ()


def test_annotations_set_auth_cache_ttls(world: World) -> None:
    statuses = {
        "gatehouse.dev/authentication-token-success-cache-ttl": "2m",
        "gatehouse.dev/authorization-cache-authorized-ttl": "long",
    }
    key = world.cluster("a.example", annotations=statuses)
    assert world.served()["a.example"].identity == AuthCacheTTLs(good_for=120)
    status, _, message = world.condition(key, "PartiallyInvalid")
    assert (status, message) == (
        "True",
        "annotation gatehouse.dev/authorization-cache-authorized-ttl: 'long' must be a duration "
        "from 0s to 1h, such as 10m; using 300s",
    )


def test_limits_are_divided_among_connected_data_planes(world: World) -> None:
    schema = {
        "name": "s",
        "strategy": "globalCount",
        "maxRequestsInflight": {"max": 1},
        "globalMaxRequestsInflight": {"max": 10},
    }
    gate = {"proxy.kubegateway.io/feature-gates": "GlobalRateLimiter=true"}
    policy = {"rules": [EVERYTHING], "flowControlSchemaName": "s"}
    world.cluster(
        "a.example",
        annotations=gate,
        flowControl={"flowControlSchemas": [schema]},
        dispatchPolicies=[policy],
    )
    world.cluster("b.example")
    assert world.served()["a.example"].schemas[0].limit == InFlight(10)
    other = world.served()["b.example"]
    world.engine.commit({replicas_key(GATEWAY): ("x", "y", "z")})
    assert world.served()["a.example"].schemas[0].limit == InFlight(3)
    assert world.served()["b.example"] is other


def test_number_of_data_planes_is_a_dependency_only_of_divided_limits(world: World) -> None:
    world.cluster("a.example")
    world.compiled()
    runs = world.engine.runs
    world.engine.commit({replicas_key(GATEWAY): ("x", "y", "z")})
    world.compiled()
    assert world.engine.runs == runs
    assert not world.engine.reads(replicas_key(GATEWAY))


def test_token_buckets_are_shared_with_a_counter() -> None:
    world = World(gateway_api.ControllerSettings(bind="any", counter="counter:8081"))
    world.gateway()
    schema = {
        "name": "s",
        "strategy": "globalAllocate",
        "tokenBucket": {"qps": 1, "burst": 1},
        "globalTokenBucket": {"qps": 9, "burst": 10},
    }
    world.cluster(
        "a.example",
        annotations={"proxy.kubegateway.io/feature-gates": "GlobalRateLimiter=true"},
        flowControl={"flowControlSchemas": [schema]},
        dispatchPolicies=[{"rules": [EVERYTHING], "flowControlSchemaName": "s"}],
    )
    (listener,) = world.compiled().api_listeners
    assert listener.counter == "counter:8081"
    assert listener.clusters[0].schemas[0].shared == TokenBucket(9, 10)


def test_queries_per_change_do_not_grow_with_the_number_of_clusters(world: World) -> None:
    for number in range(300):
        world.cluster(f"c{number}.example")
    before = world.served()
    runs = world.engine.runs
    world.cluster("c7.example", logging={"mode": "on"})
    after = world.served()
    changed = [name for name in after if after[name] is not before[name]]
    assert changed == ["c7.example"]
    assert world.engine.runs - runs <= 16


def test_key_material_is_not_in_repr(world: World) -> None:
    chain, private = pair("client")
    key = world.cluster(
        "a.example",
        servers=HTTPS,
        clientConfig={"keyData": private, "certData": chain, "caData": ca(), "bearerToken": "c2E="},
        secureServing={"keyData": private, "certData": chain},
    )
    text = repr(world.engine.snapshot.get(key)) + repr(world.compiled())
    assert private not in text
    assert "c2E=" not in text
    with pytest.raises(TypeError):
        msgspec.json.encode(world.compiled().certificates[0].key)
