"""What becomes of a request for a kube-apiserver: `gatehouse explain`."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import click
import msgspec
import yaml
from rich.console import Console
from rich.table import Table

from gatehouse.apis import meta, resources
from gatehouse.apis.request_info import RequestError, RequestInfo, parse
from gatehouse.apis.upstream_clusters import UpstreamCluster
from gatehouse.cli.errors import CLIError
from gatehouse.cli.status import PATH, kubeconfig_of
from gatehouse.compiler.frontends import upstream_cluster
from gatehouse.compiler.frontends.upstream_cluster import dispatch_policies
from gatehouse.compiler.frontends.upstream_cluster.dispatch import (
    ANONYMOUS,
    Decision,
    User,
    decide,
    names_of,
)
from gatehouse.compiler.frontends.upstream_cluster.findings import Reason
from gatehouse.compiler.frontends.upstream_cluster.flow_control import SharedLimits
from gatehouse.compiler.ir.kube_apiserver import ApiCluster, FlowSchema, InFlight, Names
from gatehouse.kube import client as kube
from gatehouse.kube.config import ConfigError

Object = dict[str, Any]

FIELD_LABELS = {
    "verbs": "verbs",
    "users": "users and serviceAccounts",
    "user_groups": "userGroups",
    "groups": "apiGroups",
    "resources": "resources",
    "names": "resourceNames",
    "paths": "nonResourceURLs",
}
"""Fields of rules, as the object has them."""


NOTHING = "nothing"


class RequestOptions(msgspec.Struct, frozen=True):
    """What the options say of a request."""

    verb: str = ""
    resource: str = ""
    subresource: str = ""
    group: str = ""
    namespace: str = ""
    name: str = ""
    path: str = ""
    method: str = "GET"


@click.command()
@click.option("--cluster", required=True, help="Name of the UpstreamCluster.")
@click.option("--as", "user", default=ANONYMOUS, show_default=True, help="Who asks.")
@click.option("--as-group", "groups", multiple=True, help="A group of theirs; more than one each.")
@click.option("--verb", default="", help="get, list, watch, create, …; of a resource.")
@click.option("--resource", default="", help="pods, pods/log, deployments.apps, …")
@click.option("--subresource", default="")
@click.option("--api-group", "group", default="", help="Empty for the core group.")
@click.option("--namespace", "-n", default="")
@click.option("--name", default="")
@click.option("--path", default="", help="A path with its query, in the place of a resource.")
@click.option("--method", default="GET", show_default=True, help="Of a request by --path.")
@click.option("--filename", "-f", type=PATH, default=None, help="Read the object from a file.")
@click.option("--output", "-o", type=click.Choice(["table", "json"]), default="table")
@click.option("--kubeconfig", type=PATH, default=None, help="Default: $KUBECONFIG, else ours.")
def explain(
    cluster: str,
    user: str,
    groups: tuple[str, ...],
    filename: Path | None,
    output: str,
    kubeconfig: Path | None,
    **asked: str,
) -> None:
    """Show which policy of an UpstreamCluster a request falls under, and why.

    Groups that follow from the name are added: system:authenticated, those of a ServiceAccount.
    """
    request = request_of(RequestOptions(**asked))
    who = User(user, with_implicit_groups(user, groups))
    raw = (
        _from_file(filename, cluster) if filename else _fetched(kubeconfig_of(kubeconfig), cluster)
    )
    found = explained(raw, request, who)
    if output == "json":
        click.echo(json.dumps(found, indent=2))
    else:
        _print(found)


def request_of(asked: RequestOptions) -> RequestInfo:
    """Give the request that is meant. Raises Trouble."""
    if bool(asked.path) == bool(asked.resource):
        raise CLIError("give either --resource or --path")
    if asked.path:
        extra = [
            f for f in ("verb", "subresource", "group", "namespace", "name") if getattr(asked, f)
        ]
        if extra:
            raise CLIError(f"--{extra[0].replace('group', 'api-group')} follows from --path")
        if not asked.path.startswith("/"):
            raise CLIError(f"--path: {asked.path!r} does not begin with /")
        try:
            return parse(asked.method, asked.path)
        except RequestError as error:
            raise CLIError(f"--path: {error}: a kube-apiserver does not understand it") from error
    if not asked.verb:
        raise CLIError("--verb is missing: get, list, watch, create, update, patch, delete, …")
    named, _, subresource = asked.resource.partition("/")
    resource, _, group = named.partition(".")
    return RequestInfo(
        verb=asked.verb,
        path="",
        is_resource=True,
        group=asked.group or group,
        resource=resource,
        subresource=asked.subresource or subresource,
        namespace=asked.namespace,
        name=asked.name,
    )


def with_implicit_groups(user: str, groups: tuple[str, ...]) -> tuple[str, ...]:
    """Give the groups that somebody has, beside those that are told."""
    kind = "system:unauthenticated" if user == ANONYMOUS else "system:authenticated"
    implied = [kind]
    prefix, _, account = user.partition("system:serviceaccount:")
    if account and not prefix:
        implied = [
            "system:serviceaccounts",
            f"system:serviceaccounts:{account.split(':')[0]}",
            kind,
        ]
    return tuple(dict.fromkeys((*groups, *implied)))


def explained(raw: Object, request: RequestInfo, user: User) -> Object:
    """Give what becomes of a request, in the words of the object. Raises Trouble."""
    read = upstream_cluster.decode("UpstreamCluster", raw)
    if isinstance(read, meta.Malformed):
        raise CLIError(f"UpstreamCluster {read.metadata.name}: {read.message}")
    assert isinstance(read, UpstreamCluster)
    meaning = dispatch_policies.read(
        read.metadata.annotations, read.spec, SharedLimits(counter=True)
    )
    cluster = ApiCluster(
        name=read.metadata.name,
        hosts=(read.metadata.name,),
        servers=meaning.servers.enabled,
        policies=meaning.policies,
        schemas=meaning.schemas,
        denied=meaning.denied,
    )
    decision = decide(cluster, request, user)
    schema = next((each for each in cluster.schemas if each.name == decision.schema), None)
    found: Object = {
        "cluster": cluster.name,
        "user": {"name": user.name, "groups": list(user.groups)},
        "request": msgspec.to_builtins(request) | {"longRunning": request.long_running},
        "outcome": _outcome(cluster, decision, schema),
        "policy": None,
        "rule": None,
        "schema": _schema(schema),
        "servers": list(decision.servers),
        "logged": decision.logged,
        "mismatches": [_mismatch(meaning, each) for each in decision.mismatches],
        "problems": [f.message for f in meaning.findings if f.reason is Reason.PARTIALLY_INVALID],
        "differences": [f.message for f in meaning.findings if f.reason is Reason.DIFFERS],
    }
    if decision.policy is not None and decision.rule is not None:
        origin = meaning.origins[decision.policy]
        found |= {"policy": origin.index, "rule": origin.rules[decision.rule]}
    return found


def _outcome(cluster: ApiCluster, decision: Decision, schema: FlowSchema | None) -> str:
    if cluster.denied:
        return "429: the feature gate DenyAllRequests refuses every request"
    if decision.policy is None:
        return "403: no policy holds it"
    if schema is not None and schema.limit == InFlight(0):
        return f"429: flow control schema {schema.name} lets nothing through"
    if not decision.servers:
        return "503: no server may answer it"
    return "forwarded"


def _schema(schema: FlowSchema | None) -> Object | None:
    return msgspec.to_builtins(schema) if schema is not None else None


def _mismatch(meaning: dispatch_policies.RequestPolicy, missed: Any) -> Object:
    origin = meaning.origins[missed.policy]
    rule = meaning.policies[missed.policy].rules[missed.rule]
    return {
        "policy": origin.index,
        "rule": origin.rules[missed.rule],
        "field": FIELD_LABELS[missed.field],
        "value": missed.value,
        "wanted": format_names(names_of(rule, missed.field)),
    }


def format_names(names: Names) -> str:
    """Give a set of names in words."""
    listed = [
        *(each or repr(each) for each in names.exact),
        *(f"{each}*" for each in names.prefixes),
        *(f"*/{each}" for each in names.subresources),
    ]
    if names.others:
        return f"anything but {', '.join(listed)}" if listed else "anything"
    return ", ".join(listed) or NOTHING


def _fetched(kubeconfig: Path, name: str) -> Object:
    async def fetch() -> Object:
        async with kube.Client.from_kubeconfig(kubeconfig) as client:
            return await client.get(resources.UPSTREAM_CLUSTERS, name)

    try:
        return asyncio.run(fetch())
    except kube.NotFound as error:
        raise CLIError(f"there is no UpstreamCluster {name}: {error}") from error
    except (kube.ApiError, ConfigError) as error:
        raise CLIError(str(error)) from error


def _from_file(path: Path, name: str) -> Object:
    try:
        documents = list(yaml.safe_load_all(path.read_text(encoding="utf-8")))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise CLIError(f"{path}: {error}") from error
    for each in documents:
        found = isinstance(each, dict) and each.get("kind") == "UpstreamCluster"
        if (
            found
            and isinstance(each.get("metadata"), dict)
            and each["metadata"].get("name") == name
        ):
            return dict(each)
    raise CLIError(f"{path} has no UpstreamCluster {name}")


def _print(found: Object) -> None:
    console = Console()
    table = Table(title=f"Policies of {found['cluster']}", title_justify="left")
    for column in ("Policy", "Rule", "Holds", "Why not"):
        table.add_column(column, overflow="fold")
    for each in found["mismatches"]:
        why = f"{each['field']}: {each['value']!r} is not in: {each['wanted']}"
        if each["wanted"] == NOTHING:
            why = f"{each['field']} is empty"
        table.add_row(str(each["policy"]), str(each["rule"]), "[red]no", why)
    if found["policy"] is not None:
        table.add_row(str(found["policy"]), str(found["rule"]), "[green]yes", "")
    console.print(table)
    console.print(f"Outcome: {found['outcome']}", markup=False)
    console.print(f"Schema:  {_limit(found['schema'])}", markup=False)
    console.print(f"Servers: {', '.join(found['servers']) or 'none'}", markup=False)
    console.print(f"Logged:  {'yes' if found['logged'] else 'no'}", markup=False)
    for title, field in (("Problem", "problems"), ("Unlike KubeGateway", "differences")):
        for each in found[field]:
            console.print(f"{title}: {each}", markup=False)


def _limit(schema: Object | None) -> str:
    if schema is None:
        return "none: not limited"
    limit = schema["limit"]
    if limit["type"] == "InFlight":
        return f"{schema['name']}: {limit['most']} requests at a time at each data plane"
    shared = "of all data planes together" if schema.get("shared") else "at each data plane"
    return (
        f"{schema['name']}: {limit['rate']} requests a second, bursts of {limit['burst']}, {shared}"
    )


COMMANDS = (explain,)
