"""Specs of Pods and templates. The recorded responses of kube-apiserver have most violations."""

from __future__ import annotations

from typing import Any

import pytest

from kube_api_server.builtin.pod_specs import check_pod_spec
from kube_api_server.builtin.validation import check_secret, check_workload

Object = dict[str, Any]


def container(name: str = "c", **rest: Any) -> Object:
    return {"name": name, "image": "i", **rest}


def deployment(**rest: Any) -> Object:
    """Build a Deployment whose template has a request above its limit, and never restarts."""
    resources = {"limits": {"cpu": "1"}, "requests": {"cpu": "2"}}
    template = {
        "metadata": {"labels": {"a": "b"}},
        "spec": {"restartPolicy": "Never", "containers": [container(resources=resources)]},
    }
    return {"spec": {"selector": {"matchLabels": {"a": "b"}}, "template": template, **rest}}


@pytest.mark.parametrize(
    ("spec", "violation"),
    [
        (
            {"initContainers": [container()], "containers": [container()]},
            "FieldValueDuplicate spec.containers[0].name",
        ),
        (
            {"containers": [container(startupProbe={"exec": {}, "grpc": {"port": 1}})]},
            "FieldValueForbidden spec.containers[0].startupProbe.grpc",
        ),
        (
            {"containers": [container(resources={"requests": {"memory": "-1Gi"}})]},
            "FieldValueInvalid spec.containers[0].resources.requests[memory]",
        ),
        (
            {"containers": [container(volumeMounts=[{"name": "v"}])]},
            "FieldValueNotFound spec.containers[0].volumeMounts[0].name",
        ),
        ({"containers": [{"name": "c"}]}, "FieldValueRequired spec.containers[0].image"),
    ],
)
def test_spec_has_violation(spec: Object, violation: str) -> None:
    (cause,) = check_pod_spec(spec, "spec")
    assert f"{cause.reason} {cause.field}" == violation


def test_requests_up_to_the_limit_are_valid() -> None:
    resources = {"limits": {"cpu": "1"}, "requests": {"cpu": "1000m", "memory": "1Gi"}}
    assert list(check_pod_spec({"containers": [container(resources=resources)]}, "spec")) == []


def test_template_is_valid_until_it_changes() -> None:
    stored = deployment()
    assert {cause.field for cause in check_workload(stored, None)} == {
        "spec.template.spec.containers[0].resources.requests",
        "spec.template.spec.restartPolicy",
    }
    assert list(check_workload(deployment(replicas=3), stored)) == []


def test_data_of_a_secret_are_valid_until_they_change() -> None:
    secret = {"metadata": {}, "type": "kubernetes.io/basic-auth", "data": {"note": ""}}
    assert len(list(check_secret(secret, None))) == 2
    assert list(check_secret({**secret, "metadata": {"labels": {"a": "b"}}}, secret)) == []
    assert len(list(check_secret({**secret, "data": {}}, secret))) == 2
