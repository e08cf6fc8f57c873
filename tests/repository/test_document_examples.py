"""Objects, `gatehouse` commands and `kubectl` resources in documents are valid."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from fakes import upstream_worlds
from fakes.admission import REGISTRY, admit
from fakes.documentation import DOCUMENTS, ROOT, blocks, simple_commands, spans
from gatehouse.cli.main import command

Object = dict[str, Any]
PLACEHOLDER = "…"
EXAMPLES = sorted(ROOT.glob("examples/**/*.yaml"))
# The changelog also names what was removed.
COMMANDS_FROM = [path for path in (*DOCUMENTS, *EXAMPLES) if path.name != "CHANGELOG.md"]


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


def command_lines(document: Path) -> Iterator[tuple[list[str], bool]]:
    """Yield the words of each command of a document or an example, and whether it is complete.

    Commands in running text and in comments may be without their required options.
    """
    for block in blocks(document, "console", "sh"):
        for line in block.commands:
            yield from ((words, True) for words in simple_commands(line))
    text = document.read_text(encoding="utf-8")
    comments = re.findall(r"^# {3,}(\S.*)$", text, re.MULTILINE)
    for line in comments if document.suffix == ".yaml" else spans(document):
        if re.match(r"(\S+/)?(gatehouse|kubectl) ", line):
            yield from ((words, False) for words in simple_commands(line))


def gatehouse_problem(words: list[str], *, complete: bool) -> str:
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
    current: click.Command, values: Object, rest: list[str], *, complete: bool
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


@pytest.mark.parametrize("document", COMMANDS_FROM, ids=lambda path: str(path.relative_to(ROOT)))
def test_gatehouse_command_in_document_is_valid(document: Path) -> None:
    for words, complete in command_lines(document):
        if words[0].rpartition("/")[2] == "gatehouse" and words[0] != "charts/gatehouse":
            assert gatehouse_problem(words[1:], complete=complete) == "", words


def test_gatehouse_commands_are_found() -> None:
    lines = [words for document in COMMANDS_FROM for words, _ in command_lines(document)]
    assert sum(words[0].endswith("gatehouse") for words in lines) > 100
    assert sum(words[0] == "kubectl" for words in lines) > 50


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
    ],
)
def test_invalid_gatehouse_command_is_found(line: str, problem: str) -> None:
    (words,) = simple_commands(line)
    assert problem in gatehouse_problem(words[1:], complete=True)


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


@pytest.mark.parametrize("document", COMMANDS_FROM, ids=lambda path: str(path.relative_to(ROOT)))
def test_kubectl_resource_in_document_exists(document: Path) -> None:
    for words, _ in command_lines(document):
        if words[0] == "kubectl":
            for name in kubectl_resources(words[1:]):
                assert name in RESOURCE_NAMES or name.isupper(), words


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
