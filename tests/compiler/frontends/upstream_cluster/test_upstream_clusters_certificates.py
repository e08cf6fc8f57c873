"""Certificates that are expired, not valid yet, or do not cover hostnames: served and reported."""

from __future__ import annotations

import base64
import time
from datetime import UTC, datetime

import pytest
from cryptography import x509

from fakes.upstream_worlds import GATEWAY, World, authority, b64, ca, condition
from gatehouse.compiler.frontends import gateway_api
from gatehouse.compiler.frontends.upstream_cluster.certificate_hosts import certificate_covers

DAY = 86400.0
HTTPS = [{"endpoint": "https://10.0.0.1:6443"}]
NOTHING = ("", "", "")


def issued(*names: str) -> dict[str, str]:
    """Return a key pair for hostnames, valid from two days ago until tomorrow."""
    files = authority().issue("-".join(names) or "none", *(x509.DNSName(name) for name in names))
    chain, key = (b64(file.read_bytes()) for file in files)
    return {"certData": chain, "keyData": key}


def shown(pair: dict[str, str], *, end: bool) -> str:
    """Return the end or start of validity of a key pair, as in statuses."""

    (certificate,) = x509.load_pem_x509_certificates(base64.b64decode(pair["certData"]))
    moment = certificate.not_valid_after_utc if end else certificate.not_valid_before_utc
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def test_expired_certificate_is_served_and_reported(world: World) -> None:
    pair = issued("a.example")
    key = world.cluster("a.example", secureServing=pair)
    (certificate,) = world.served()["a.example"].certificates
    world.at(time.time())
    assert world.condition(key, "CertificateValid") == NOTHING
    world.at(time.time() + 2 * DAY)
    end = shown(pair, end=True)
    message = f"spec.secureServing.certData: the certificate expired at {end}"
    assert world.condition(key, "CertificateValid") == ("False", "Expired", message)
    assert world.served()["a.example"].certificates == (certificate,)
    assert world.condition(key, "ResolvedRefs")[0] == "True"
    assert world.condition(key, "Programmed")[0] == "True"
    # The condition is on the object, and not repeated for each Gateway.
    (here,) = world.status(key)["gateways"]
    assert condition(here, "CertificateValid") == NOTHING


def test_expired_client_certificate_is_reported_beside_the_serving_one(world: World) -> None:
    own, serving = issued("gateway.example"), issued("a.example")
    config = {**own, "caData": ca()}
    key = world.cluster("a.example", servers=HTTPS, clientConfig=config, secureServing=serving)
    world.at(time.time())
    assert world.condition(key, "CertificateValid") == NOTHING
    world.at(time.time() + 2 * DAY)
    status, reason, message = world.condition(key, "CertificateValid")
    assert (status, reason) == ("False", "Expired")
    assert message.split("; ")[:2] == [
        f"spec.secureServing.certData: the certificate expired at {shown(serving, end=True)}",
        f"spec.clientConfig.certData: the certificate expired at {shown(own, end=True)}",
    ]
    # The CA of the servers was issued for the same time.
    assert "; spec.clientConfig.caData: the certificate expired at " in message
    served = world.served()["a.example"]
    assert served.tls is not None
    assert served.tls.certificate
    # Servers look for no name of a host in it.
    assert "does not cover" not in message


def test_rejected_certificate_is_left_out_and_reported(world: World) -> None:
    own, serving = issued("gateway.example"), issued("a.example")
    config = {**own, "caData": ca()}
    key = world.cluster("a.example", servers=HTTPS, clientConfig=config, secureServing=serving)
    served = world.compiled()
    assert {str(certificate.origin) for certificate in served.certificates} >= {
        "UpstreamCluster a.example: spec.clientConfig.certData",
        "UpstreamCluster a.example: spec.secureServing.certData",
    }
    for certificate in served.certificates:
        if certificate.origin.kind == "UpstreamCluster":
            reject(world, certificate.name, "bad key")
    cluster = world.served()["a.example"]
    assert cluster.certificates == ()
    assert cluster.tls is not None
    assert cluster.tls.certificate == ""
    assert cluster.servers == ()
    message = world.condition(key, "ResolvedRefs")[2]
    assert "spec.secureServing: certificate rejected by envoy/1: bad key" in message
    assert "spec.clientConfig: certificate rejected by envoy/1: bad key" in message


@pytest.mark.parametrize("section", ["clientConfig", "secureServing"])
def test_rejected_ca_certificates_are_left_out_and_reported(world: World, section: str) -> None:
    config = {**issued("gateway.example"), "caData": ca()}
    serving = {**issued("a.example"), "clientCAData": b64(2 * authority().pem)}
    key = world.cluster("a.example", servers=HTTPS, clientConfig=config, secureServing=serving)
    bundles = {
        str(trust_bundle.origins[0]): trust_bundle
        for trust_bundle in world.compiled().trust_bundles
    }
    field = {"clientConfig": "caData", "secureServing": "clientCAData"}[section]
    reject(world, bundles[f"UpstreamCluster a.example: spec.{section}.{field}"].name, "bad CA")
    cluster = world.served()["a.example"]
    assert (cluster.servers == ()) == (section == "clientConfig")
    assert (cluster.client_trust == "") == (section == "secureServing")
    message = world.condition(key, "ResolvedRefs")[2]
    assert f"spec.{section}: CA certificates rejected by envoy/1: bad CA" in message


def test_rejected_token_is_left_out_and_reported(world: World) -> None:
    token = base64.b64encode(b"secret-token").decode()
    config = {"bearerToken": token, "caData": ca()}
    serving = issued("a.example")
    key = world.cluster("a.example", servers=HTTPS, clientConfig=config, secureServing=serving)
    (secret,) = world.compiled().secrets
    assert str(secret.origin) == "UpstreamCluster a.example: spec.clientConfig.bearerToken"
    reject(world, secret.name, "bad token")
    cluster = world.served()["a.example"]
    assert (cluster.token, cluster.servers) == ("", ())
    message = world.condition(key, "ResolvedRefs")[2]
    assert "spec.clientConfig: bearer token rejected by envoy/1: bad token" in message


def test_credentials_that_are_tried_again_are_used_and_reported(world: World) -> None:
    config = {**issued("gateway.example"), "caData": ca()}
    serving = {**issued("a.example"), "clientCAData": b64(2 * authority().pem)}
    key = world.cluster("a.example", servers=HTTPS, clientConfig=config, secureServing=serving)
    served, compiled = world.served(), world.compiled()
    for credential in compiled.credentials:
        reject(world, credential.name, "bad", tried=True)
    assert world.served() == served
    message = world.condition(key, "ResolvedRefs")[2]
    for section in ("clientConfig", "secureServing"):
        for kind in ("certificate", "CA certificates"):
            assert f"spec.{section}: {kind} rejected by envoy/1: bad" in message


def reject(world: World, name: str, message: str, *, tried: bool = False) -> None:
    """Let the Gateway's proxy reject a credential; ``tried``: and test it again."""
    rejected = gateway_api.RejectedCredential(name, f"rejected by envoy/1: {message}")
    key = gateway_api.rejected_credential_key(GATEWAY, name, tried=tried)
    world.engine.commit({key: rejected})


def test_certificate_is_valid_through_its_last_second(world: World) -> None:
    pair = issued("a.example")
    key = world.cluster("a.example", secureServing=pair)
    last = datetime.fromisoformat(shown(pair, end=True)).timestamp()
    first = datetime.fromisoformat(shown(pair, end=False)).timestamp()
    for now, reason in (
        (first - 1, "NotYetValid"),
        (first, ""),
        (last, "ExpiresSoon"),
        (last + 1, "Expired"),
    ):
        world.at(now)
        assert world.condition(key, "CertificateValid")[1] == reason


def test_certificate_that_is_not_valid_yet_is_reported(world: World) -> None:
    pair = issued("a.example")
    chain, private = pair["certData"], pair["keyData"]
    world.put("Secret", "s", "ns", data={"tls.crt": chain, "tls.key": private})
    reference = {"namespace": "ns", "name": "s"}
    key = world.cluster("a.example", secureServing={"secretRef": reference})
    world.at(time.time() - 3 * DAY)
    start = shown(pair, end=False)
    where = "spec.secureServing.secretRef: Secret ns/s tls.crt"
    message = f"{where}: the certificate is not valid before {start}"
    assert world.condition(key, "CertificateValid") == ("False", "NotYetValid", message)


def test_validity_is_not_reported_until_the_time_is_known(world: World) -> None:
    key = world.cluster("a.example", secureServing=issued("a.example"))
    assert world.condition(key, "CertificateValid") == NOTHING


def test_uncovered_hostnames_are_reported(world: World) -> None:
    serving = {**issued("*.example", "old.test"), "serverNames": ["deep.b.example", "c.example"]}
    key = world.cluster("a.example", secureServing=serving)
    message = (
        "spec.secureServing.certData: the certificate does not cover deep.b.example; "
        "certificate names: *.example, old.test"
    )
    assert world.condition(key, "CertificateValid") == ("False", "HostnameMismatch", message)
    assert world.condition(key, "Programmed")[0] == "True"
    world.cluster("a.example", secureServing={**serving, "serverNames": ["c.example"]})
    assert world.condition(key, "CertificateValid") == NOTHING


def test_hostname_of_another_cluster_need_not_be_covered(world: World) -> None:
    old = "2025-01-01T00:00:00Z"
    world.cluster("x.example", created=old, secureServing={"serverNames": ["b.test"]})
    serving = {**issued("a.example"), "serverNames": ["b.test"]}
    key = world.cluster("a.example", secureServing=serving)
    assert world.condition(key, "Conflicted")[0] == "True"
    assert world.condition(key, "CertificateValid") == NOTHING


def test_certificate_without_dns_names_covers_no_hostname(world: World) -> None:
    # The common name counts for no client of today.
    chain, private = (b64(file.read_bytes()) for file in authority().issue("a.example"))
    serving = {"certData": chain, "keyData": private}
    names = [f"n{number}.test" for number in range(9)]
    key = world.cluster("a.example", secureServing={**serving, "serverNames": names})
    message = (
        "spec.secureServing.certData: the certificate does not cover a.example, n0.test, n1.test, "
        "n2.test, n3.test and 5 more; it has no DNS names"
    )
    assert world.condition(key, "CertificateValid")[2] == message


@pytest.mark.parametrize(
    ("names", "host", "held"),
    [
        (["a.example"], "a.example", True),
        (["b.example", "a.example"], "a.example", True),
        (["*.example"], "a.example", True),
        (["*.example"], "example", False),
        (["*.example"], "b.a.example", False),
        (["*.a.example"], "b.a.example", True),
        (["a*.example"], "ab.example", False),
        (["a.*.example"], "a.b.example", False),
        (["*"], "example", False),
        (["example"], "example", True),
        ([], "a.example", False),
    ],
)
def test_wildcard_matches_one_label(names: list[str], host: str, held: bool) -> None:
    assert certificate_covers(names, host) is held
