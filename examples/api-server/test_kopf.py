"""The operator of `greeter.py` against an API server."""

import time
from pathlib import Path

import kr8s
import pytest
from kopf.testing import KopfRunner
from kr8s.objects import CustomResourceDefinition, new_class

Greeting = new_class("Greeting", "example.com/v1", asyncio=False)

DEFINITION = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "greetings.example.com"},
    "spec": {
        "group": "example.com",
        "scope": "Namespaced",
        "names": {"plural": "greetings", "singular": "greeting", "kind": "Greeting"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "subresources": {"status": {}},
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "properties": {
                            "spec": {
                                "type": "object",
                                "required": ["name"],
                                "properties": {"name": {"type": "string", "maxLength": 20}},
                                "x-kubernetes-validations": [
                                    {"rule": "self.name != 'nobody'", "message": "who?"}
                                ],
                            },
                            "status": {
                                "type": "object",
                                "x-kubernetes-preserve-unknown-fields": True,
                            },
                        },
                    }
                },
            }
        ],
    },
}


@pytest.fixture(scope="module")
def api(kube_apiserver):
    client = kr8s.api(kubeconfig=str(kube_apiserver.kubeconfig))
    CustomResourceDefinition(DEFINITION, api=client).create()
    return client


def greeting(api, name, whom):
    metadata = {"name": name, "namespace": "default"}
    return Greeting({"metadata": metadata, "spec": {"name": whom}}, api=api)


def test_operator_greets(api, kube_apiserver, monkeypatch):
    monkeypatch.setenv("KUBECONFIG", str(kube_apiserver.kubeconfig))
    operator = Path(__file__).with_name("greeter.py")
    with KopfRunner(["run", "--namespace", "default", str(operator)], timeout=30) as runner:
        obj = greeting(api, "first", "world")
        obj.create()
        deadline = time.monotonic() + 20
        while "text" not in obj.raw.get("status", {}) and time.monotonic() < deadline:
            time.sleep(0.05)
            obj.refresh()
    assert runner.exception is None
    assert obj.status.text == "Hello, world!"


def test_invalid_greeting_is_rejected_as_in_a_cluster(api):
    with pytest.raises(kr8s.ServerError, match=r'Greeting.example.com "second" is invalid.*who\?'):
        greeting(api, "second", "nobody").create()
