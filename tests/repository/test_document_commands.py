"""Commands in documents and examples do what they say with the present programs."""

from __future__ import annotations

import importlib.util
import re
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import Any

import click
import pytest

from fakes import kubectls
from fakes.administrator import HELM
from fakes.admission import REGISTRY
from fakes.documentation import DOCUMENTS, ROOT, blocks, simple_commands, spans
from fakes.process import environment
from gatehouse.cli.main import command

PLACEHOLDER = "…"
EXAMPLES = sorted(ROOT.glob("examples/**/*.yaml"))
# The changelog also names what was removed.
COMMANDS_FROM = [path for path in (*DOCUMENTS, *EXAMPLES) if path.name != "CHANGELOG.md"]


def command_lines(document: Path) -> Iterator[tuple[list[str], bool]]:
    """Yield the words of each command of a document or an example, and whether it is complete.

    Commands in running text and in comments may be without their required options. Variables that
    are set for a command, and the directory of a program, are left out.
    """
    for block in blocks(document, "console", "sh"):
        for line in block.commands:
            yield from ((words, True) for words in program_and_arguments(line))
    text = document.read_text(encoding="utf-8")
    comments = re.findall(r"^# {3,}(\S.*)$", text, re.MULTILINE)
    for line in comments if document.suffix == ".yaml" else spans(document):
        if re.match(rf"(\S+/)?({'|'.join(PROGRAMS)}) ", line):
            yield from ((words, False) for words in program_and_arguments(line))


def program_and_arguments(line: str) -> Iterator[list[str]]:
    for words in simple_commands(line):
        while words and re.match(r"\w+=", words[0]):
            words = words[1:]
        if words:
            yield [words[0].rpartition("/")[2], *words[1:]]


def gatehouse_problem(words: list[str], complete: bool) -> str:
    """Parse the arguments of a `gatehouse` command with click. Return the error, or an empty text.

    Brackets around optional arguments are ignored. A placeholder stands for any arguments.
    """
    arguments = [word.strip("[]") for word in words]
    complete = complete and PLACEHOLDER not in arguments
    arguments = [
        word
        for before, word in zip(["", *arguments], arguments, strict=False)
        # As the value of an option, a placeholder stays.
        if word != PLACEHOLDER or before.startswith("-")
    ]
    current: click.Command = command
    context = click.Context(command, info_name="gatehouse")
    try:
        while isinstance(current, click.Group):
            if not arguments and not complete:
                return ""
            current.parse_args(context, arguments)
            # Groups with a default subcommand insert its name.
            rest = [*context._protected_args, *context.args]
            if not rest:
                return "" if current.invoke_without_command or not complete else "no subcommand"
            inner = current.get_command(context, rest[0])
            if inner is None:
                return f"no command {rest[0]}"
            context = click.Context(inner, context, inner.name)
            current, arguments = inner, rest[1:]
        values, rest, _ = current.make_parser(context).parse_args(list(arguments))
    except click.exceptions.Exit:
        return ""  # --help and --version
    except click.BadOptionUsage as error:
        named = not complete and words[-1] == error.option_name
        return "" if named and "requires an argument" in error.message else error.message
    except click.UsageError as error:
        return error.format_message()
    return ", ".join(parameter_problems(current, values, rest, complete=complete))


def parameter_problems(
    current: click.Command, values: dict[str, Any], rest: list[str], *, complete: bool
) -> Iterator[str]:
    """Yield unexpected arguments, unknown values of choices, and missing parameters."""
    if rest:
        yield f"unexpected arguments {rest}"
    for parameter in current.params:
        value = values.get(parameter.name or "")
        missing = value in (None, ()) or not isinstance(value, str | list | tuple | bool | int)
        if complete and parameter.required and missing:
            yield f"missing {parameter.name}"
        if isinstance(parameter.type, click.Choice) and isinstance(value, str):
            known = map(str, parameter.type.choices)
            if value.lower() not in known and value != PLACEHOLDER and not value.isupper():
                yield f"{parameter.name}: no choice {value}"


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("gatehouse up --listen 1.2.3.4", "No such option"),
        # An option of another subcommand.
        ("gatehouse ratelimit --machine-address 127.0.0.1:16445", "No such option"),
        ("gatehouse certs machines lb-1", "no command machines"),
        ("gatehouse explain kube-request --cluster", "requires an argument"),
        ("gatehouse --log-level loud up", "'loud' is not one of"),
        ("gatehouse status --output html", "no choice html"),
        ("gatehouse explain --sned https://shop.example/", "No such option"),
        ("gatehouse apiserver backup --storage DIR", "missing"),
        ("kubectl get xlbz -A", "no resource xlbz"),
        ("make evidences", "no target evidences"),
        ("make demo ARG=--once", "no variable ARG"),
        ("docker build -f images/Dockerfile --target proxy .", "no target proxy"),
        ("docker build --build-arg UBUNTU=a .", "no argument UBUNTU"),
        ("python -m fakes.nginx_minus", "no module fakes.nginx_minus"),
    ],
)
def test_invalid_command_is_found(line: str, problem: str) -> None:
    (words,) = simple_commands(line)
    assert problem in PROBLEMS[words[0]](words[1:], True)


def resource_names() -> set[str]:
    """Return the names by which kubectl knows the resources of the API server."""
    names: set[str] = set()
    for served in REGISTRY.all():
        resource = served.resource
        own = {resource.plural, served.singular or resource.kind.lower(), *served.short}
        names |= own | {f"{name}.{resource.group}" for name in own if resource.group}
    return names


RESOURCE_NAMES = resource_names()
VERBS = ("annotate", "delete", "describe", "edit", "get", "label", "patch", "wait")
VALUED = (
    *("-n", "--namespace", "-o", "--output", "-L", "-l", "--selector", "-f", "-p", "--patch"),
    *("--for", "--timeout", "--as", "--kubeconfig", "-c", "--type"),
)
"""Options of kubectl whose value may be the next word."""


def kubectl_resources(words: list[str]) -> list[str]:
    """Return the resources that a kubectl command names; none for other verbs and for files."""
    arguments: list[str] = []
    skip = False
    for word in words:
        if skip:
            skip = False
        elif word.startswith("-"):
            skip = word in VALUED
        else:
            arguments.append(word)
    if not arguments or arguments[0] not in VERBS or {"-f", "-k", "--raw"} & set(words):
        return []
    arguments = [word for word in arguments if "=" not in word]
    listed = [word.partition("/")[0] for word in arguments[1:] if "/" in word]
    return listed or (arguments[1].split(",") if len(arguments) > 1 else [])


def kubectl_problem(words: list[str], complete: bool) -> str:
    names = [name for name in kubectl_resources(words) if not name.isupper()]
    return "".join(f"no resource {name}" for name in names if name not in RESOURCE_NAMES)


MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
IMAGES = (ROOT / "images" / "Dockerfile").read_text(encoding="utf-8")


def make_problem(words: list[str], complete: bool) -> str:
    targets = set(re.findall(r"^([a-z0-9-]+):", MAKEFILE, re.MULTILINE))
    for word in words:
        name, _, value = word.partition("=")
        if value and f"$({name})" not in MAKEFILE and f"$({name}," not in MAKEFILE:
            return f"no variable {name}"
        if not value and name not in targets | {PLACEHOLDER}:
            return f"no target {name}"
    return ""


def docker_problem(words: list[str], complete: bool) -> str:
    for option, word in pairwise(words):
        if option == "--target" and not re.search(rf" AS {word}$", IMAGES, re.MULTILINE):
            return f"no target {word}"
        name = word.partition("=")[0]
        if option == "--build-arg" and not re.search(rf"^ARG {name}\b", IMAGES, re.MULTILINE):
            return f"no argument {name}"
    return ""


def python_problem(words: list[str], complete: bool) -> str:
    module = words[1] if words[:1] == ["-m"] else ""
    return "" if not module or importlib.util.find_spec(module) else f"no module {module}"


PROBLEMS: dict[str, Callable[[list[str], bool], str]] = {
    "gatehouse": gatehouse_problem,
    "kubectl": kubectl_problem,
    "make": make_problem,
    "docker": docker_problem,
    "python": python_problem,
    "python3": python_problem,
}
"""Functions that return what is wrong with the arguments of a program, or an empty text."""
UNPARSED = {
    "helm": "test_program_knows_options_in_documents, test_helm_values_in_document_exist",
    "pytest": "test_path_in_command_exists",
    "promtool": "test_charts_monitoring.py runs it with the same rules",
    **dict.fromkeys(
        ("ctr", "curl", "grep", "openssl", "pip", "rm", "scp"), "of the system of a reader"
    ),
    "export": "of the shell",
    "kube-api-server": "its few arguments are in its own help",
}
"""Programs whose arguments these tests leave to another test, or do not know, with the reason."""
PROGRAMS = (*PROBLEMS, *UNPARSED)
LINES = [
    (str(document.relative_to(ROOT)), words, complete)
    for document in COMMANDS_FROM
    for words, complete in command_lines(document)
]


def test_command_in_document_is_valid() -> None:
    problems = []
    for document, (program, *arguments), complete in LINES:
        if program in PROBLEMS:
            problem = PROBLEMS[program](arguments, complete)
        else:
            problem = "" if program in UNPARSED else "unknown program"
        if problem:
            problems.append((document, program, arguments, problem))
    assert problems == []


def test_commands_are_found() -> None:
    counts = Counter(program for _, (program, *_), _ in LINES)
    assert counts.keys() == set(PROGRAMS), "the tables have no program that no document runs"
    assert counts["gatehouse"] > 100
    assert min(counts["kubectl"], counts["make"]) > 50


def test_path_in_command_exists() -> None:
    # `deploy/web` is a Deployment, too.
    folders = {folder.name for folder in ROOT.iterdir() if folder.is_dir()} - {"deploy"}
    words = [word for _, arguments, _ in LINES for word in arguments[1:] if "/" in word]
    paths = {word.partition("::")[0] for word in words if word.partition("/")[0] in folders}
    assert len(paths) > 10
    assert [path for path in paths if not (ROOT / path).exists()] == []


def test_page_that_runs_gatehouse_says_where_it_is() -> None:
    """Outside the quick start, a block may write `gatehouse` without its directory."""
    for document in COMMANDS_FROM:
        parts = blocks(document, "console", "sh")
        if any(re.match(r"gatehouse ", line) for part in parts for line in part.commands):
            assert "quick-start.md#the-command-gatehouse" in document.read_text(), document


@pytest.mark.process
@pytest.mark.parametrize("program", ["kubectl", "helm"])
def test_program_knows_options_in_documents(program: str, tmp_path: Path) -> None:
    binary = kubectls.newest() if program == "kubectl" else HELM
    if binary is None:
        pytest.skip("no helm: make helm")
    env = environment(KUBECONFIG="/dev/null", HOME=str(tmp_path))

    def problem(words: tuple[str, ...]) -> str:
        # The program parses all options, and shows the help of the subcommand.
        command = [binary, *words, "--help"]
        result = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
        usage = re.search(rf"^Usage:\n +(?:{program} )(.*)", result.stdout, re.MULTILINE)
        if result.returncode or usage is None:
            return f"{words}: {result.stderr}"
        return (
            ""
            if complete[words] is False or "[command]" not in usage[1]
            else f"{words}: {usage[1]}"
        )

    complete = {
        tuple(word for word in words if word != PLACEHOLDER): whole
        for _, (name, *words), whole in LINES
        if name == program
    }
    with ThreadPoolExecutor(2) as threads:
        assert [text for text in threads.map(problem, complete) if text] == []


@pytest.mark.parametrize(
    ("line", "names"),
    [
        ("kubectl get xlbs -n edge", ["xlbs"]),
        ("kubectl -n hello wait --for=condition=Programmed gateways/web", ["gateways"]),
        ("kubectl get pods,hosted -o wide", ["pods", "hosted"]),
        ("kubectl delete -f charts/gatehouse/crds", []),
        ("kubectl create token web", []),
        ("kubectl get --raw /api/v1/namespaces/shop/pods/web-0:9113/proxy/metrics", []),
    ],
)
def test_resources_of_kubectl_command_are_found(line: str, names: list[str]) -> None:
    (words,) = simple_commands(line)
    assert kubectl_resources(words[1:]) == names
    assert {"xlb", "hosted", "upstreamcluster", "gateways", "svc"} <= RESOURCE_NAMES
    assert "xlbs" not in RESOURCE_NAMES
