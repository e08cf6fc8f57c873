"""Agreement of permissions in the controller's tables, the embedded role and the chart."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import chart
import pytest
import yaml

from gatehouse.apiserver_extension.roles import CONTROLLER_USER, gatehouse_roles
from gatehouse.controller import permissions
from gatehouse.controller.permissions import Permission

CHART = Path(__file__).parents[2] / "charts" / "gatehouse"
GENERATED = {**chart.rules(), **chart.definitions()}


def granted(rules: list[dict[str, Any]]) -> set[Permission]:
    return {
        Permission(group, resource, verb)
        for rule in rules
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def test_embedded_role_grants_exactly_the_required_permissions() -> None:
    [role] = [
        obj
        for obj in gatehouse_roles()
        if (obj["kind"], obj["metadata"]["name"]) == ("ClusterRole", CONTROLLER_USER)
    ]
    assert granted(role["rules"]) == permissions.all_permissions()


def test_chart_grants_exactly_the_required_permissions() -> None:
    result: set[Permission] = set()
    for name in chart.RULES:
        result |= granted(
            yaml.load((CHART / "rules" / f"{name}.yaml").read_text(), yaml.CSafeLoader)
        )
    assert result == permissions.all_permissions()


def test_secrets_are_not_writable_without_copied_secrets() -> None:
    rules = yaml.load((CHART / "rules" / "cluster.yaml").read_text(), yaml.CSafeLoader)
    verbs = {permission.verb for permission in granted(rules) if permission.resource == "secrets"}
    assert verbs == {"list", "watch"}


@pytest.mark.parametrize("path", sorted(GENERATED))
def test_generated_chart_files_match_code(path: str) -> None:
    assert (CHART / path).read_text(encoding="utf-8") == GENERATED[path], "run make chart"


def test_embedded_rules_match_code() -> None:
    text = chart.EMBEDDED_RULES.read_text(encoding="utf-8")
    assert text == chart.embedded_rules(), "run make chart"


def test_bundled_crds_have_no_unused_file() -> None:
    files = {f"crds/{file.name}" for file in (CHART / "crds").iterdir()}
    assert files == {path for path in GENERATED if path.startswith("crds/")}
