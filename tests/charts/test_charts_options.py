"""The command parses the options that the chart gives to its containers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from fakes.administrator import CASES, CHART, HELM, SYSTEM, rendered, rendered_case
from gatehouse.cli import main

SCHEMA = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))
EVERYTHING = {
    "rateLimit.enabled": True,
    "rateLimit.redis.secretName": "limits",
    "machines.enabled": True,
    "certificates.secretName": "own",
    "dataPlanes.copiedSecrets": [{"use": "license", "name": "plus"}],
}
"""Values with which the chart runs all it can, and every choice is valid."""

pytestmark = pytest.mark.skipif(HELM is None, reason="no helm: make helm")


def choices(schema: dict[str, Any], path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield every value that the schema lists, with its path: of enumerations and booleans."""
    if "$ref" in schema:
        schema = SCHEMA["definitions"][schema["$ref"].removeprefix("#/definitions/")]
    listed = [True, False] if schema.get("type") == "boolean" else schema.get("enum", ())
    for value in listed:
        yield path, value
    for key, inner in schema.get("properties", {}).items():
        yield from choices(inner, f"{path}.{key}".lstrip("."))
    if "items" in schema:
        yield from choices(schema["items"], f"{path}[0]")


CHOICES = list(choices(SCHEMA))


def containers(text: str) -> Iterator[dict[str, Any]]:
    """Yield the containers of all objects with a template of Pods."""
    for obj in yaml.load_all(text, yaml.CSafeLoader):
        spec = obj.get("spec") or {}
        if obj["kind"] == "CronJob":
            spec = spec["jobTemplate"]["spec"]
        if "template" in spec:
            yield from spec["template"]["spec"]["containers"]


def parse(container: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> str:
    """Parse the arguments of a container; return the name of its subcommand."""
    for variable in container.get("env", ()):
        monkeypatch.setenv(variable["name"], variable.get("value", "of a Secret"))
    arguments = container["args"]
    [name] = [word for word in arguments if not word.startswith("-")]
    at = arguments.index(name)
    context = main.command.make_context("gatehouse", arguments[: at + 1])
    subcommand = main.command.get_command(context, name)
    assert subcommand is not None
    subcommand.make_context(name, arguments[at + 1 :], parent=context)
    return str(name)


@pytest.mark.parametrize("case", CASES, ids=lambda path: str(path.stem))
def test_options_of_a_case_are_parsed(case: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = rendered_case(case)
    assert "controller" in {parse(container, monkeypatch) for container in containers(text)}


@pytest.mark.parametrize(("path", "value"), CHOICES)
def test_options_of_a_choice_are_parsed(
    path: str, value: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = [*EVERYTHING.items(), (path, value)]
    words = [f"--set-json={at}={json.dumps(option_value)}" for at, option_value in values]
    text = rendered("gatehouse", *SYSTEM, *words)
    parsed = {parse(container, monkeypatch) for container in containers(text)}
    expected = {"controller", "ratelimit", "certs"}
    if path == "rateLimit.enabled" and not value:
        expected.remove("ratelimit")
    if path == "certificates.mode" and value != "job":
        expected.remove("certs")
    assert parsed == expected


def test_choices_are_read_from_the_schema() -> None:
    assert {("controller.logFormat", "text"), ("dataPlanes.copiedSecrets[0].use", "pull")} <= set(
        CHOICES
    )
