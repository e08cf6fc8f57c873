"""Commands of kubectl whose output is compared between Gatehouse's API server and kube-apiserver.

`commands.yaml` is the table of commands. `commands.json` has their results with a kube-apiserver,
by minor version of kubectl. A version without results there is not compared.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from typing import Any

import msgspec

from fakes.kube_parity import table
from fakes.kube_parity.comparison import FactDifference
from fakes.kubectls import Kubectl

RECORD = table.DIRECTORY / "commands.json"

Results = dict[str, dict[str, Any]]
"""Exit code, and output if it is compared, by the name of the command."""

_REPLACED = (
    (re.compile(r"parity-commands-\d+"), "NAMESPACE"),
    (re.compile(r"\b10\.96\.\d+\.\d+\b"), "CLUSTER-IP"),
    (re.compile(r"\b(127\.0\.0\.1|192\.0\.2\.1)\b"), "ADDRESS"),
    (re.compile(r"\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b"), "UID"),
    (re.compile(r"(?<=\s)\d+[smh](\d+s)?(?=\s|$)", re.MULTILINE), "AGE"),
    (re.compile(r"\b\w{3}, \d\d \w{3} 20\d\d \d\d:\d\d:\d\d [+\w]+"), "TIME"),
    (re.compile(r"20\d\d-\d\d-\d\dT[0-9:.]+Z"), "TIME"),
    (re.compile(r"resourceVersion:? *\"?\d+\"?"), "VERSION"),
)
_NO_ENDPOINTS = re.compile(r"^(Endpoints: +)(<none>)?$", re.MULTILINE)
"""Without a controller there is no EndpointSlice, with one an empty one."""
_SPACES = re.compile(r"[ \t]+")


class Command(msgspec.Struct, frozen=True, rename={"name": "as", "first_minor": "from"}):
    """A command of the table."""

    name: str
    run: str
    input: str = ""
    """Name of the object on standard input."""
    first_minor: int = 0
    """First minor version of kubectl with this command."""
    code_only: bool = False


def commands(minor: int) -> Iterator[Command]:
    """Yield the commands that a version of kubectl has."""
    text = (table.DIRECTORY / "commands.yaml").read_bytes()
    for command in msgspec.yaml.decode(text, type=list[Command]):
        if command.first_minor <= minor:
            yield command


def collect(kubectl: Kubectl, port: int) -> Results:
    """Run all commands in a new namespace, and return their results."""
    kubectl("create", "namespace", kubectl.namespace)
    # A controller has created the account, or does so after this command.
    kubectl.run("create", "serviceaccount", "default")
    results: Results = {}
    for command in commands(kubectl.minor):
        text = json.dumps(table.objects()[command.input]) if command.input else None
        code, output = kubectl.run(*shlex.split(command.run), stdin=text)
        results[command.name] = {"code": code}
        if not command.code_only:
            results[command.name]["output"] = _lines(output, port)
    return results


def _lines(output: str, port: int) -> list[str]:
    """Return the lines of an output without what differs between two servers."""
    output = re.sub(rf"\b{port}\b", "PORT", output)
    for pattern, name in _REPLACED:
        output = pattern.sub(name, output)
    output = _NO_ENDPOINTS.sub(r"\1<none>", output)
    return [_SPACES.sub(" ", line).strip() for line in output.splitlines() if line.strip()]


def read_record() -> dict[str, Results]:
    """Return the recorded results by minor version of kubectl."""
    result: dict[str, Results] = json.loads(RECORD.read_text()) if RECORD.exists() else {}
    return result


def write_record(minor: int, results: Results) -> None:
    """Record the results of one version of kubectl, one command per line."""
    record = {**read_record(), str(minor): results}
    parts = []
    for version, commands_of in sorted(record.items()):
        lines = (f"  {json.dumps(name)}: {json.dumps(item)}" for name, item in commands_of.items())
        parts.append(f"{json.dumps(version)}: {{\n" + ",\n".join(lines) + "\n}")
    RECORD.write_text("{\n" + ",\n".join(parts) + "\n}\n")


def differences(minor: int, results: Results) -> list[FactDifference]:
    """Return the results that differ from the record, in the order of the commands."""
    recorded = read_record()[str(minor)]
    return [
        FactDifference(f"kubectl 1.{minor}: {name}", fact, json.dumps(before), json.dumps(after))
        for name in recorded | results
        for fact in ("code", "output")
        if (before := recorded.get(name, {}).get(fact))
        != (after := results.get(name, {}).get(fact))
    ]
