"""Objects in documents and examples are valid."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import yaml

from fakes import upstream_worlds
from fakes.admission import REGISTRY, admit
from fakes.documentation import DOCUMENTS, ROOT, blocks

Object = dict[str, Any]
PLACEHOLDER = "…"
EXAMPLES = sorted(ROOT.glob("examples/**/*.yaml"))


def route_with(fields: Object) -> Object:
    rule = {**fields, "backendRefs": [{"name": "api", "port": 80}]}
    return {
        "apiVersion": "gateway.networking.k8s.io/v1",
        "kind": "HTTPRoute",
        "metadata": {"name": "api"},
        "spec": {"rules": [rule]},
    }


def gateway_with(listeners: Any) -> Object:
    return {
        "apiVersion": "gateway.networking.k8s.io/v1",
        "kind": "Gateway",
        "metadata": {"name": "apis"},
        "spec": {"gatewayClassName": "gatehouse-envoy", "listeners": listeners},
    }


def role_with(rules: Any) -> Object:
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": "reviewer"},
        "rules": rules,
    }


def cluster_with(fields: Object) -> Object:
    base: Object = {
        "apiVersion": "proxy.kubegateway.io/v1alpha1",
        "kind": "UpstreamCluster",
        "metadata": {},
        "spec": upstream_worlds.spec(),
    }
    whole = {**base, **fields}
    whole["metadata"]["name"] = "prod.example"
    return whole


def balancer_with(fields: Object) -> Object:
    return {
        "apiVersion": "gatehouse.dev/v1alpha1",
        "kind": "ExternalLoadBalancer",
        "metadata": {"name": "edge"},
        **fields,
    }


FRAGMENTS: dict[tuple[str, str], Callable[[Any], Object] | None] = {
    ("docs/reference/gateway-api-nginx.md", "filters:"): route_with,
    ("docs/reference/reviewer.md", "- {apiGroups: [authentication.k8s.io],"): role_with,
    ("docs/tasks/external-load-balancers.md", "spec:"): balancer_with,
    ("docs/tasks/hosted-apiservers.md", "- {name: tunnels,"): gateway_with,
    ("docs/tasks/kube-apiservers.md", "rules:"): lambda fields: role_with(fields["rules"]),
    ("docs/tasks/kube-apiservers.md", "metadata:"): cluster_with,
    ("docs/tasks/kube-apiservers.md", "status:"): cluster_with,
    # Values of the chart.
    ("docs/tasks/alerts.md", "metrics:"): None,
    # Configuration of NGINX Agent and of `gatehouse agent`.
    ("docs/reference/agent-v2.md", "# nginx-agent.conf"): None,
    ("docs/reference/agent-v3.md", "# /etc/nginx-agent/nginx-agent.conf"): None,
    ("examples/agent-outside.yaml", "# Configuration file of an agent"): None,
}
"""Parts of objects, by document and start, with the function that completes the object; None: the
text is no Kubernetes object."""


def yaml_texts() -> Iterator[tuple[str, str]]:
    """Yield the place and text of each YAML text of documents and examples."""
    for document in DOCUMENTS:
        for block in blocks(document, "yaml"):
            yield f"{block.document}:{block.line}", block.text
        for block in blocks(document, "sh", "console"):
            for text in block.heredocs:
                yield f"{block.document}:{block.line}", text
    for example in EXAMPLES:
        yield f"{example.relative_to(ROOT)}:1", example.read_text(encoding="utf-8")


def fragment_of(place: str, text: str) -> tuple[str, str] | None:
    """Return the key in FRAGMENTS of a text, or None if the text has whole objects."""
    name = place.rpartition(":")[0]
    for document, start in FRAGMENTS:
        if document == name and text.lstrip().startswith(start):
            return document, start
    return None


def without_placeholders(value: Any) -> Any:
    """Return a value without the list elements that stand for others."""
    if isinstance(value, list):
        return [without_placeholders(item) for item in value if item != PLACEHOLDER]
    if isinstance(value, dict):
        return {key: without_placeholders(item) for key, item in value.items()}
    return value


def objects_of(place: str, text: str) -> list[Object]:
    """Return the objects of a YAML text; fragments are completed."""
    key = fragment_of(place, text)
    contents = [without_placeholders(item) for item in yaml.safe_load_all(text)]
    if key is None:
        return contents
    complete = FRAGMENTS[key]
    return [] if complete is None else [complete(contents[0])]


METADATA = {"annotations", "labels", "name", "namespace", "finalizers", "ownerReferences"}


def check_object(raw: Object) -> None:
    """Validate an object as the API server does. Unknown fields are errors."""
    served = REGISTRY.by_kind(raw["apiVersion"], raw["kind"])
    assert served is not None, f"unknown kind {raw['apiVersion']}/{raw['kind']}"
    assert raw["metadata"].keys() <= METADATA
    assert raw["metadata"]["name"]
    if served.resource.namespaced:
        raw["metadata"].setdefault("namespace", "ns")
    else:
        assert "namespace" not in raw["metadata"], "the kind has no namespace"
    admit(served.resource, raw)


TEXTS = list(yaml_texts())


@pytest.mark.parametrize(("place", "text"), TEXTS, ids=[place for place, _ in TEXTS])
def test_object_in_document_is_valid(place: str, text: str) -> None:
    for raw in objects_of(place, text):
        check_object(raw)


def test_every_fragment_is_used_and_objects_are_found() -> None:
    assert {fragment_of(*text) for text in TEXTS} - {None} == FRAGMENTS.keys()
    assert sum(len(objects_of(*text)) for text in TEXTS) > 50


@pytest.mark.parametrize(
    "text",
    [
        "apiVersion: v1\nkind: Service\nmetadata: {name: a}\nspec: {prots: [{port: 80}]}",
        "apiVersion: v1\nkind: Service\nmetadata: {name: a}\nspec: {ports: [{port: 80000}]}",
        "apiVersion: v1\nkind: Service\nmetadata: {name: a, label: {}}\nspec: {}",
        "apiVersion: v2\nkind: Service\nmetadata: {name: a}",
        "apiVersion: gatehouse.dev/v1alpha1\nkind: ExternalLoadBalancer\nmetadata: {name: a}\n"
        "spec: {hosts: [{url: 'http://10.1.1.4/api'}], drain: 3}",
        "apiVersion: gateway.networking.k8s.io/v1\nkind: GatewayClass\n"
        "metadata: {name: a, namespace: b}\nspec: {controllerName: gatehouse.dev/nginx}",
    ],
)
def test_invalid_object_is_found(text: str) -> None:
    with pytest.raises(AssertionError):
        check_object(yaml.safe_load(text))
