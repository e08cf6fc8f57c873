"""`gatehouse explain`: dispatch policy that applies to a kube-apiserver request."""

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
"""Decision fields to the field names of dispatch policy rules."""

NOTHING = "nothing"


class RequestOptions(msgspec.Struct, frozen=True):
    """Request described by the options."""

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
@click.option("--as", "user", default=ANONYMOUS, show_default=True, help="User name.")
@click.option("--as-group", "groups", multiple=True, help="Group of the user. Can be repeated.")
@click.option(
    "--verb",
    default="",
    help="Verb of a resource request: get, list, watch, create, update, patch or delete.",
)
@click.option(
    "--resource", default="", help="Resource, such as pods, pods/log or deployments.apps."
)
@click.option("--subresource", default="", help="Subresource, such as log or status.")
@click.option("--api-group", "group", default="", help="API group. Default: the core group.")
@click.option("--namespace", "-n", default="", help="Namespace of the request.")
@click.option("--name", default="", help="Name of the object.")
@click.option("--path", default="", help="URL path with query, instead of --resource.")
@click.option("--method", default="GET", show_default=True, help="HTTP method of --path.")
@click.option(
    "--filename", "-f", type=PATH, default=None, help="Path of a file with the UpstreamCluster."
)
@click.option(
    "--output",
    "-o",
    type=click.Choice(["table", "json"]),
    default="table",
    show_default=True,
    help="Output format.",
)
@click.option(
    "--kubeconfig",
    type=PATH,
    default=None,
    help="Path of the kubeconfig. Default: $KUBECONFIG, or that of `gatehouse up`.",
)
def explain(
    cluster: str,
    user: str,
    groups: tuple[str, ...],
    filename: Path | None,
    output: str,
    kubeconfig: Path | None,
    **fields: str,
) -> None:
    """Show which dispatch policy of an UpstreamCluster applies to a request, and why.

    Implicit groups are added: system:authenticated and the groups of a ServiceAccount.
    """
    request = request_of(RequestOptions(**fields))
    who = User(user, with_implicit_groups(user, groups))
    raw = (
        _from_file(filename, cluster) if filename else _fetched(kubeconfig_of(kubeconfig), cluster)
    )
    found = explained(raw, request, who)
    if output == "json":
        click.echo(json.dumps(found, indent=2))
    else:
        _print(found)


def request_of(options: RequestOptions) -> RequestInfo:
    """Return the request described by `options`. Raises CLIError."""
    if bool(options.path) == bool(options.resource):
        raise CLIError("exactly one of --resource and --path is required")
    if options.path:
        extra = [
            f for f in ("verb", "subresource", "group", "namespace", "name") if getattr(options, f)
        ]
        if extra:
            raise CLIError(
                f"--{extra[0].replace('group', 'api-group')} must not be set with --path"
            )
        if not options.path.startswith("/"):
            raise CLIError(f"--path: {options.path!r} must start with /")
        try:
            return parse(options.method, options.path)
        except RequestError as error:
            raise CLIError(f"--path: {error}: not a valid kube-apiserver request") from error
    if not options.verb:
        raise CLIError("--verb is required: get, list, watch, create, update, patch, delete, …")
    named, _, subresource = options.resource.partition("/")
    resource, _, group = named.partition(".")
    return RequestInfo(
        verb=options.verb,
        path="",
        is_resource=True,
        group=options.group or group,
        resource=resource,
        subresource=options.subresource or subresource,
        namespace=options.namespace,
        name=options.name,
    )


def with_implicit_groups(user: str, groups: tuple[str, ...]) -> tuple[str, ...]:
    """Return `groups` with the implicit groups of `user`."""
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
    """Return the decision about a request, with field names of the object. Raises CLIError."""
    read = upstream_cluster.FRONT_END.kinds.decode("UpstreamCluster", raw)
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
        return "429: the feature gate DenyAllRequests rejects every request"
    if decision.policy is None:
        return "403: no policy matches"
    if schema is not None and schema.limit == InFlight(0):
        return f"429: flow control schema {schema.name} allows no requests"
    if not decision.servers:
        return "503: no server is allowed"
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
    """Return a set of names as text."""
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
        raise CLIError(f"UpstreamCluster {name} not found: {error}") from error
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
    raise CLIError(f"UpstreamCluster {name} not found in {path}")


def _print(found: Object) -> None:
    console = Console()
    table = Table(title=f"Policies of {found['cluster']}", title_justify="left")
    for column in ("Policy", "Rule", "Matches", "Reason"):
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
