"""`gatehouse explain kube-request`: dispatch policy that applies to a kube-apiserver request."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import click
import msgspec

from gatehouse.apis import meta, resources
from gatehouse.apis.upstream_clusters import UpstreamCluster
from gatehouse.cli.errors import CLIError
from gatehouse.cli.kube_request_sender import (
    KubeTarget,
    dry_run,
    kube_target,
    send_kube_request,
)
from gatehouse.cli.manifest_files import read_manifest_files
from gatehouse.cli.object_source import read_cluster
from gatehouse.cli.output import show
from gatehouse.cli.parameters import PATH, kubeconfig_of, kubeconfig_option
from gatehouse.cli.sent_response import SentResponse
from gatehouse.cli.terminal import ObjectTable, coloured, show_coloured
from gatehouse.compiler.frontends import upstream_cluster
from gatehouse.compiler.frontends.upstream_cluster import dispatch_policies
from gatehouse.compiler.frontends.upstream_cluster.dispatch import (
    ANONYMOUS_USER_NAME,
    DispatchDecision,
    DispatchUser,
    dispatch_request,
    names_of,
)
from gatehouse.compiler.frontends.upstream_cluster.findings import ClusterReason
from gatehouse.compiler.ir.kube_apiserver import ApiCluster, FlowSchema, InFlight
from gatehouse.inspection.kube_apiserver_report import (
    NOTHING,
    limit_text,
    names_text,
    policies_of,
)
from gatehouse.inspection.object_set import ObjectSet
from gatehouse.kube import client as kube
from gatehouse.kube.config import ConfigError
from kube_base.runtime.printable import printable
from kube_base.types.objects import Object
from kube_base.types.request_info import RequestError, RequestInfo, parse_request

EXIT_DIFFERENT = 4
"""Exit status if the answer to `--send` is another one."""

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


@click.command("kube-request")
@click.option("--cluster", required=True, help="Name of the UpstreamCluster.")
@click.option("--as", "user", default=ANONYMOUS_USER_NAME, show_default=True, help="User name.")
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
    "--filename",
    "-f",
    "filenames",
    type=PATH,
    multiple=True,
    help="File or directory with the UpstreamCluster, - for standard input. Can be repeated. "
    "Default: that of the API server.",
)
@click.option(
    "--output",
    "-o",
    type=click.Choice(["table", "json"]),
    default="table",
    show_default=True,
    help="Output format.",
)
@click.option("--send", is_flag=True, help="Send the request by a Gateway and compare the answer.")
@click.option(
    "--credentials",
    type=PATH,
    default=None,
    help="Kubeconfig with the credentials of the user of --as, for --send. Default: none.",
)
@click.option(
    "--api-version",
    default="v1",
    show_default=True,
    help="Version of the resource, for --send.",
)
@kubeconfig_option
@click.pass_context
def kube_request(
    context: click.Context,
    /,
    cluster: str,
    user: str,
    groups: tuple[str, ...],
    filenames: tuple[Path, ...],
    output: str,
    send: bool,
    credentials: Path | None,
    api_version: str,
    kubeconfig: Path | None,
    **fields: str,
) -> None:
    """Show the dispatch policy of a kube-apiserver request.

    \b
    gatehouse explain kube-request --cluster prod --as bob --verb list --resource pods
    gatehouse explain kube-request --cluster prod -f clusters/ --path /healthz

    It is that of an UpstreamCluster. Policies that do not match are listed with the reason.

    Implicit groups are added: system:authenticated and the groups of a ServiceAccount.

    With --send, requests that change objects are dry runs. Those that cannot be dry runs are not
    sent, such as pods/exec. The exit status is 4 if the answer differs.
    """
    options = RequestOptions(**fields | {"method": fields["method"].upper()})
    request = request_of(options)
    if send and filenames:
        raise CLIError("--send needs a cluster: it must not be set with --filename")
    if credentials and not send:
        raise CLIError("--credentials needs --send")
    who = DispatchUser(user, with_implicit_groups(user, groups))
    sent = None
    if filenames:
        explanation = explained(_from_files(filenames, cluster), request, who)
    elif send:
        path, target = kubeconfig_of(kubeconfig), _target(options, request, api_version)
        objects = read_cluster(path)
        explanation = explained(_among(objects, cluster), request, who)
        sent = send_kube_request(path, objects, target, explanation, credentials)
    else:
        explanation = explained(_fetched(kubeconfig_of(kubeconfig), cluster), request, who)
    if output == "json":
        document = explanation | ({"sent": msgspec.to_builtins(sent)} if sent else {})
        show(json.dumps(document, indent=2))
    else:
        _print(explanation, sent)
    context.exit(EXIT_DIFFERENT if sent and not sent.agrees else 0)


def _target(options: RequestOptions, request: RequestInfo, version: str) -> KubeTarget:
    if options.path:
        return dry_run(KubeTarget(options.method, options.path))
    return kube_target(request, version)


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
            return parse_request(options.method, options.path)
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
    kind = "system:unauthenticated" if user == ANONYMOUS_USER_NAME else "system:authenticated"
    implied = [kind]
    prefix, _, account = user.partition("system:serviceaccount:")
    if account and not prefix:
        implied = [
            "system:serviceaccounts",
            f"system:serviceaccounts:{account.split(':')[0]}",
            kind,
        ]
    return tuple(dict.fromkeys((*groups, *implied)))


def explained(raw: Object, request: RequestInfo, user: DispatchUser) -> Object:
    """Return the decision about a request, with field names of the object. Raises CLIError."""
    read = upstream_cluster.UPSTREAM_CLUSTER_FRONT_END.kinds.decode("UpstreamCluster", raw)
    if isinstance(read, meta.Malformed):
        raise CLIError(f"UpstreamCluster {read.metadata.name}: {read.message}")
    assert isinstance(read, UpstreamCluster)
    meaning = policies_of(raw, read)
    cluster = ApiCluster(
        name=read.metadata.name,
        hosts=(read.metadata.name,),
        servers=meaning.servers.enabled,
        policies=meaning.policies,
        schemas=meaning.schemas,
        denied=meaning.denied,
    )
    decision = dispatch_request(cluster, request, user)
    schema = next(
        (candidate for candidate in cluster.schemas if candidate.name == decision.schema), None
    )
    explanation: Object = {
        "cluster": cluster.name,
        "user": {"name": user.name, "groups": list(user.groups)},
        "request": msgspec.to_builtins(request) | {"longRunning": request.long_running},
        "outcome": _outcome(cluster, decision, schema),
        "policy": None,
        "rule": None,
        "schema": _schema(schema),
        "servers": list(decision.servers),
        "logged": decision.logged,
        "mismatches": [_mismatch(meaning, mismatch) for mismatch in decision.mismatches],
        "problems": [
            f.message for f in meaning.findings if f.reason is ClusterReason.PARTIALLY_INVALID
        ],
        "differences": [f.message for f in meaning.findings if f.reason is ClusterReason.DIFFERS],
    }
    if decision.policy is not None and decision.rule is not None:
        origin = meaning.origins[decision.policy]
        explanation |= {"policy": origin.index, "rule": origin.rules[decision.rule]}
    return explanation


def _outcome(cluster: ApiCluster, decision: DispatchDecision, schema: FlowSchema | None) -> str:
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
        "wanted": names_text(names_of(rule, missed.field)),
    }


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


def _among(objects: ObjectSet, name: str) -> Object:
    for cluster in objects.of_kind("UpstreamCluster"):
        if cluster["metadata"]["name"] == name:
            return cluster
    raise CLIError("; ".join((f"UpstreamCluster {name} not found", *objects.notes)))


def _from_files(paths: tuple[Path, ...], name: str) -> Object:
    for manifest in read_manifest_files(paths):
        value = manifest.value
        if (value["kind"], value["metadata"]["name"]) == ("UpstreamCluster", name):
            return value
    places = ", ".join(map(str, paths))
    raise CLIError(f"UpstreamCluster {name} not found in {places}")


def _print(explanation: Object, sent: SentResponse | None) -> None:
    columns = ("Policy", "Rule", "Matches", "Reason")
    table = ObjectTable(f"Policies of {explanation['cluster']}", *columns)
    for mismatch in explanation["mismatches"]:
        why = f"{mismatch['field']}: {mismatch['value']!r} is not in: {mismatch['wanted']}"
        if mismatch["wanted"] == NOTHING:
            why = f"{mismatch['field']} is empty"
        no = coloured("no", "red")
        table.add_values(str(mismatch["policy"]), str(mismatch["rule"]), no, why)
    if explanation["policy"] is not None:
        yes = coloured("yes", "green")
        table.add_values(str(explanation["policy"]), str(explanation["rule"]), yes, "")
    show_coloured(table)
    lines = [
        f"Outcome: {explanation['outcome']}",
        *([f"Sent:    {sent.text}"] if sent else []),
        *([f"Entry:   {sent.logged.text}"] if sent and sent.logged else []),
        f"Schema:  {_limit(explanation['schema'])}",
        f"Servers: {', '.join(explanation['servers']) or 'none'}",
        f"Logged:  {'yes' if explanation['logged'] else 'no'}",
        *(f"Problem: {problem}" for problem in explanation["problems"]),
        *(f"Unlike KubeGateway: {difference}" for difference in explanation["differences"]),
    ]
    for line in lines:
        show(printable(line))


def _limit(schema: Object | None) -> str:
    if schema is None:
        return "none: not limited"
    return f"{schema['name']}: {limit_text(msgspec.convert(schema, FlowSchema))}"
