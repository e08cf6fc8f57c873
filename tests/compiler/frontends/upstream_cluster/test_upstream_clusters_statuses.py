"""Statuses of UpstreamClusters at Gateways."""

from __future__ import annotations

import pytest

from fakes.upstream_worlds import (
    EVERYTHING,
    LISTENER,
    World,
    b64,
    ca,
    condition,
    pair,
)
from gatehouse.compiler.frontends import combined


def shown() -> dict[str, str]:
    """Return the fields of a certificate for clients."""
    chain, private = pair("server")
    return {"certData": chain, "keyData": private}


ALSO = "and listener api has no valid certificate in tls.certificateRefs"


@pytest.mark.parametrize(
    ("serving", "message"),
    [
        ({}, f"spec.secureServing: must be set, {ALSO}"),
        (
            {"serverNames": ["b.example"]},
            f"spec.secureServing: certData and keyData, or secretRef, must be set, {ALSO}",
        ),
        (
            {"secretRef": {"namespace": "ns", "name": "bare"}},
            "spec.secureServing.secretRef: data[tls.crt] and data[tls.key] not found in "
            f"Secret ns/bare, {ALSO}",
        ),
        (
            {"secretRef": {"namespace": "ns", "name": "gone"}},
            f"spec.secureServing.secretRef: Secret ns/gone not found, {ALSO}",
        ),
        (
            {"certData": b64(b"nonsense"), "keyData": b64(b"nonsense")},
            "spec.secureServing: certData must be a PEM certificate with a supported key type, "
            + ALSO,
        ),
    ],
)
def test_cluster_is_not_programmed_without_a_certificate(
    world: World, serving: dict[str, object], message: str
) -> None:
    world.secret("bare", ca_crt=ca())
    key = world.cluster("a.example", secureServing=serving)
    reported = world.condition(key, "Programmed")
    assert reported == ("False", "CertificateNotFound", f"Gateway ns/gw: {message}")
    (here,) = world.status(key)["gateways"]
    assert condition(here, "Programmed") == ("False", "CertificateNotFound", message)
    world.cluster("a.example", secureServing={**shown(), "serverNames": ["b.example"]})
    assert world.condition(key, "Programmed")[:2] == ("True", "Programmed")


def test_mismatched_key_pair_names_the_source_of_both_halves(world: World) -> None:
    chain, other = pair("server")[0], pair("other")[1]
    reference = {"secretRef": {"namespace": "ns", "name": "s"}}
    where = "Secret ns/s"
    cases = [
        ({"tls_crt": chain, "tls_key": other}, {}, f"tls.key of {where}", f"tls.crt of {where}"),
        ({"tls_crt": chain}, {"keyData": other}, "keyData", f"tls.crt of {where}"),
        ({"tls_key": other}, {"certData": chain}, f"tls.key of {where}", "certData"),
    ]
    for data, inline, key, certificate in cases:
        world.secret("s", **data)
        name = world.cluster("a.example", secureServing={**reference, **inline})
        message = f"{key} does not match the first certificate of {certificate}"
        reported = world.condition(name, "ResolvedRefs")
        assert reported == ("False", "InvalidCredentials", f"spec.secureServing: {message}")
    world.secret("s", tls_crt=chain)
    world.cluster("a.example", secureServing=reference)
    message = f"spec.secureServing.secretRef: {where} tls.crt: tls.key of {where} must be set, too"
    assert world.condition(name, "ResolvedRefs")[2] == message
    # The back end's own words for the same are not repeated.
    world.unsupported("a.example", "there is none to show")
    assert world.condition(name, "PartiallyInvalid") == ("", "", "")
    assert world.condition(name, "Programmed")[1] == "CertificateNotFound"


def test_listener_certificate_is_sufficient(world: World) -> None:
    chain, private = pair("listener")
    key = world.cluster("a.example")
    world.secret("s", tls_crt=chain, tls_key=private)
    tls = {"mode": "Terminate", "certificateRefs": [{"name": "s"}]}
    world.gateway(listeners=[{**LISTENER, "tls": tls}])
    assert world.condition(key, "Programmed")[:2] == ("True", "Programmed")
    # Each listener needs a certificate. The second port has none.
    other = {**LISTENER, "name": "other", "port": 7443}
    world.gateway(listeners=[{**LISTENER, "tls": tls}, other])
    _, reason, message = world.condition(key, "Programmed")
    assert reason == "CertificateNotFound"
    assert "listener other has no valid certificate" in message


def test_wholly_unsupported_cluster_is_not_programmed(world: World) -> None:
    key = world.cluster("a.example", secureServing=shown())
    world.unsupported("a.example", "there is no word for it")
    assert world.condition(key, "Programmed") == (
        "False",
        "Invalid",
        "Gateway ns/gw: not served: there is no word for it",
    )


def test_programmed_follows_the_data_planes(world: World) -> None:
    key = world.cluster("a.example", secureServing=shown())
    assert world.condition(key, "Programmed")[0] == "True"
    world.gateway("other", programmed=False)
    assert world.condition(key, "Programmed")[0] == "False"
    here, there = world.status(key)["gateways"]
    assert [condition(gateway, "Programmed")[0] for gateway in (here, there)] == ["True", "False"]


def test_unsupported_parts_are_reported(world: World) -> None:
    key = world.cluster("a.example")
    world.cluster("a.example.net")
    world.unsupported("a.example", "no such thing here", served=True)
    assert world.condition(key, "PartiallyInvalid")[2] == "no such thing here"
    other = ("UpstreamCluster", "", "a.example.net")
    assert world.condition(other, "PartiallyInvalid") == ("", "", "")


def test_all_servers_disabled_is_reported(world: World) -> None:
    key = world.cluster("a.example", servers=[{"endpoint": "http://a", "disabled": True}])
    assert world.condition(key, "Accepted")[0] == "True"
    assert "all servers are disabled" in world.condition(key, "PartiallyInvalid")[2]


def test_malformed_object_is_reported_and_does_not_affect_others(world: World) -> None:
    key = world.put("UpstreamCluster", "bad.example", spec={"servers": "none"})
    world.cluster("a.example")
    assert list(world.served()) == ["a.example"]
    status, reason, message = world.condition(key, "Accepted")
    assert (status, reason) == ("False", "Invalid")
    assert "servers" in message


def test_equal_status_is_not_written(world: World) -> None:
    key = world.cluster("a.example", dispatchPolicies=[{"rules": [EVERYTHING, {}]}])
    first = world.status(key)
    assert condition(first, "PartiallyInvalid")[0] == "True"
    expected = world.gateway_status(key)
    assert combined.merge_combined_status(key[0], first, expected, "2030-01-01T00:00:00Z") is None
    theirs = {"gatewayRef": {"namespace": "x", "name": "y"}, "controllerName": "else.example/c"}
    mixed = {**first, "gateways": [theirs, *first["gateways"]], "more": 1}
    mixed["conditions"] = [*mixed["conditions"], {"type": "Theirs", "status": "True"}]
    assert combined.merge_combined_status(key[0], mixed, expected, "2030-01-01T00:00:00Z") is None
    world.cluster("a.example")
    merged = (
        combined.merge_combined_status(
            key[0], mixed, world.gateway_status(key), "2030-01-01T00:00:00Z"
        )
        or {}
    )
    assert {entry["type"] for entry in merged["conditions"]} == {
        *("Accepted", "ResolvedRefs", "Programmed", "Theirs")
    }
    assert merged["gateways"][0] == theirs
