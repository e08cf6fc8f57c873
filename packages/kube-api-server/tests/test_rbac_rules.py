"""Requests that one rule allows."""

from __future__ import annotations

from typing import Any

import pytest

from kube_api_server.rbac.rules import Attributes, allows, any_allows


def rule(verbs: str, resources: str, groups: str = "core", names: str = "") -> dict[str, Any]:
    return {
        "verbs": verbs.split(),
        "apiGroups": ["" if group == "core" else group for group in groups.split()],
        "resources": resources.split(),
        "resourceNames": names.split(),
    }


def ask(text: str, group: str = "", name: str = "") -> Attributes:
    verb, resource = text.split()
    plural, _, subresource = resource.partition("/")
    return Attributes(verb, group, plural, subresource, "default", name)


@pytest.mark.parametrize(
    ("granted", "attributes", "allowed"),
    [
        (rule("get", "pods"), ask("get pods"), True),
        (rule("get", "pods"), ask("list pods"), False),
        (rule("get", "pods"), ask("get services"), False),
        (rule("get", "pods"), ask("get pods", group="apps"), False),
        (rule("get list", "pods services"), ask("list services"), True),
        (rule("*", "pods"), ask("delete pods"), True),
        (rule("get", "*"), ask("get pods"), True),
        (rule("get", "*"), ask("get pods/log"), True),
        (rule("get", "pods", groups="*"), ask("get pods", group="apps"), True),
        (rule("get", "pods"), ask("get pods/log"), False),
        (rule("get", "pods/log"), ask("get pods/log"), True),
        (rule("get", "pods/log"), ask("get pods"), False),
        (rule("get", "pods/*"), ask("get pods/log"), False),
        (rule("update", "*/scale"), ask("update deployments/scale"), True),
        (rule("update", "*/scale"), ask("update deployments/status"), False),
        (rule("update", "*/scale"), ask("update deployments"), False),
        (rule("update", "*/scale"), ask("update scale"), False),
        (rule("get", "pods", names="a b"), ask("get pods", name="b"), True),
        (rule("get", "pods", names="a b"), ask("get pods", name="c"), False),
        (rule("list create", "pods", names="a"), ask("create pods"), False),
        (rule("get", "pods") | {"resourceNames": [""]}, ask("get pods"), False),
        (rule("*", "*", groups="*"), Attributes("get", path="/metrics"), False),
        ({"verbs": ["get"], "apiGroups": None, "resources": None}, ask("get pods"), False),
        ({}, ask("get pods"), False),
    ],
)
def test_resource_rule_matches_requests(
    granted: dict[str, Any], attributes: Attributes, allowed: bool
) -> None:
    assert allows(granted, attributes) is allowed


@pytest.mark.parametrize(
    ("urls", "path", "allowed"),
    [
        ("/version", "/version", True),
        ("/version", "/version/", False),
        ("/version", "/versions", False),
        ("/apis/*", "/apis/apps/v1", True),
        ("/apis/*", "/apis/", True),
        ("/apis/*", "/apis", False),
        ("/api*", "/apis/apps", True),
        ("*", "/anything", True),
        ("/a/*/c", "/a/b/c", False),
    ],
)
def test_url_rule_matches_paths(urls: str, path: str, allowed: bool) -> None:
    granted = {"verbs": ["get"], "nonResourceURLs": urls.split()}
    assert allows(granted, Attributes("get", path=path)) is allowed
    assert not allows(granted, Attributes("post", path=path))


def test_one_matching_rule_is_sufficient() -> None:
    rules = [rule("get", "pods"), rule("get", "services")]
    assert any_allows(rules, ask("get services"))
    assert not any_allows(rules, ask("get nodes"))
