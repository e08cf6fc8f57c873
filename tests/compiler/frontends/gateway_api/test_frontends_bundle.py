"""Compatibility of the cluster's Gateway API CRDs with the supported version."""

from __future__ import annotations

from importlib import resources

import msgspec
import pytest

from fakes.compiled_objects import engine_with
from gatehouse.compiler.frontends import gateway_api
from gatehouse.compiler.frontends.gateway_api import crd_version
from gatehouse.compiler.frontends.gateway_api.status import class_status
from gatehouse.controller.informers import crd_versions


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        ("v1.7.0", "same"),
        ("v1.7.1-rc1", "same"),
        ("1.7.2", "same"),
        ("v1.5.1", "near"),
        ("v1.6.3", "near"),
        ("v1.17.0", "near"),
        ("v0.8.1", "foreign"),
        ("v2.0.0", "foreign"),
        ("v17.0.0", "foreign"),
        ("main", "near"),
        ("", "near"),
    ],
)
def test_versions_are_compared_by_major_and_minor(version: str, expected: str) -> None:
    assert crd_version.compatibility(version) == expected


def test_bundled_crds_have_the_supported_version() -> None:
    directory = resources.files("gatehouse.apiserver_extension").joinpath("bundled")
    versions = crd_versions(
        msgspec.json.decode(file.read_bytes())
        for file in directory.iterdir()
        if file.name.endswith(".json")
    )
    assert len(versions.versions) >= 10
    assert {crd_version.compatibility(version) for _, version in versions.versions} == {"same"}


@pytest.mark.parametrize(
    ("installed", "own", "foreign"),
    [
        ((), "HTTPRouteRetryCodes", "HTTPRouteRetry"),
        (("v1.6.1", "main"), "GatewayInfrastructurePropagation", "GatewayInfrastructure"),
        (("v1.6.2",), "GatewayInfrastructurePropagation", "GatewayInfrastructure"),
        (("v1.6.3",), "GatewayInfrastructure", "GatewayInfrastructurePropagation"),
        (("v1.6.3",), "HTTPRouteRetry", "GatewayListenerFilters"),
        (("v1.7.0",), "GatewayListenerFilters", "HTTPRouteRetry"),
        (("v1.7.0",), "HTTPRouteRetryCodes", "HTTPRouteRetry"),
        (("v1.10.0-rc.1", "v1.7.0"), "GatewayInfrastructure", "GatewayInfrastructurePropagation"),
        (("v1.7.0", "v1.6.1"), "HTTPRouteRetry", "HTTPRouteRetryCodes"),
    ],
)
def test_class_names_features_as_the_installed_crds_do(
    installed: tuple[str, ...], own: str, foreign: str
) -> None:
    spec = {"controllerName": "gatehouse.dev/nginx"}
    gateway_class = {"metadata": {"name": "nginx"}, "spec": spec}
    engine = engine_with([("GatewayClass", gateway_class)], gateway_api.ControllerSettings())
    versions = tuple((f"{number}.crd", version) for number, version in enumerate(installed))
    engine.commit({gateway_api.CRD_VERSIONS_KEY: gateway_api.CRDVersions(versions)})
    with engine.compile() as ask:
        status = ask(class_status.class_status, ("GatewayClass", "", "nginx"))
    assert status is not None
    assert own in status.features
    assert foreign not in status.features
    assert list(status.features) == sorted(set(status.features))


@pytest.mark.parametrize("reason", ["", "clustertrustbundles.certificates.k8s.io/v1 is not served"])
def test_class_names_trust_bundles_where_the_cluster_serves_them(reason: str) -> None:
    """GEP-5075: "MUST be advertised only when the API is present"."""
    spec = {"controllerName": "gatehouse.dev/nginx"}
    gateway_class = {"metadata": {"name": "nginx"}, "spec": spec}
    engine = engine_with([("GatewayClass", gateway_class)], gateway_api.ControllerSettings())
    engine.commit({gateway_api.unavailable_kind_key("ClusterTrustBundle"): reason or None})
    with engine.compile() as ask:
        status = ask(class_status.class_status, ("GatewayClass", "", "nginx"))
    assert status is not None
    assert ("ClusterTrustBundle" in status.features) == (not reason)
