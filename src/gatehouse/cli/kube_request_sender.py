"""`gatehouse explain kube-request --send`: the answer of a Gateway, compared with the decision."""

from __future__ import annotations

import asyncio
import json
import secrets
import ssl
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import aiohttp
import msgspec

from gatehouse.apis.request_info import RequestInfo
from gatehouse.cli.connection_sender import TIMEOUT_SECONDS, unverified
from gatehouse.cli.errors import CLIError
from gatehouse.cli.logged_request import LoggedRequest, read_logged
from gatehouse.cli.object_source import read_cluster
from gatehouse.cli.sent_response import SentResponse, failure_text
from gatehouse.compiler.frontends.gateway_api import gateway_addresses
from gatehouse.compiler.frontends.upstream_cluster.attachment import (
    cluster_listeners,
    gateways_of_cluster,
)
from gatehouse.compiler.frontends.upstream_cluster.hostnames import cluster_hostnames
from gatehouse.controller.offline import offline_pass
from gatehouse.inspection.object_set import ObjectSet, pods_of_gateway
from gatehouse.kube import client as kube
from gatehouse.kube.config import ConfigError, Configuration, from_kubeconfig
from gatehouse.kube.credentials import CredentialError

_METHODS = {
    "create": "POST", "get": "GET", "list": "GET", "watch": "GET", "update": "PUT",
    "patch": "PATCH", "delete": "DELETE", "deletecollection": "DELETE",
}  # fmt: skip
_READING = ("GET", "HEAD", "OPTIONS")
_GATEWAY_STATUSES = (502, 503, 504)

_NO_POLICY = "no policy of cluster("
"""Start of the message of the Gateway if no policy matches. A server may answer 403, too."""


class KubeTarget(msgspec.Struct, frozen=True):
    """A request as it is sent."""

    method: str
    path: str
    """Path with query."""


class _Place(msgspec.Struct, frozen=True):
    """A Gateway that serves a cluster."""

    gateway: str
    host: str
    address: str
    port: int


class _Entry(msgspec.Struct, frozen=True):
    """Fields of an entry in the access log for kube-apiservers."""

    user_agent: str | None
    user: str | None
    endpoint: str | None
    flags: str | None
    details: str | None


def kube_target(request: RequestInfo, version: str) -> KubeTarget:
    """Return the request of a resource as it is sent. Raises CLIError for other verbs.

    A request that changes objects is a dry run.
    """
    method = _METHODS.get(request.verb, "")
    if not method:
        raise CLIError(f"--send: verb {request.verb} has no HTTP method: use --path and --method")
    parts = ["apis", request.group, version] if request.group else ["api", version]
    parts += ["namespaces", request.namespace] if request.namespace else []
    parts += [part for part in (request.resource, request.name, request.subresource) if part]
    path = "/" + "/".join(quote(part, safe="") for part in parts)
    return dry_run(KubeTarget(method, f"{path}?watch=1" if request.verb == "watch" else path))


def dry_run(target: KubeTarget) -> KubeTarget:
    """Return a request that changes no object."""
    if target.method in _READING:
        return target
    separator = "&" if "?" in target.path else "?"
    return KubeTarget(target.method, f"{target.path}{separator}dryRun=All")


def send_kube_request(
    kubeconfig: Path,
    cluster: str,
    target: KubeTarget,
    explanation: Mapping[str, Any],
    credentials: Path | None,
) -> SentResponse:
    """Send a request by the first Gateway that serves a cluster, and compare the answer.

    ``explanation``: as of `gatehouse explain kube-request`. ``credentials``: kubeconfig of the
    user; None: no credentials. Raises CLIError if there is no such Gateway.
    """
    objects = read_cluster(kubeconfig)
    place = _place(objects, cluster)
    agent = f"gatehouse-explain/{secrets.token_hex(16)}"
    try:
        user = from_kubeconfig(credentials) if credentials else None
        sent = asyncio.run(_exchange(place, target, agent, user, str(explanation["outcome"])))
    except (ConfigError, CredentialError) as error:
        raise CLIError(f"--credentials: {error}") from error
    if sent.status is None or not (explanation["logged"] or sent.status == 429):
        return sent
    pods = pods_of_gateway(objects.pods, place.gateway)

    async def read() -> LoggedRequest:
        async with kube.Client.from_kubeconfig(kubeconfig) as client:
            return await read_logged(client, pods, lambda lines: find_kube_entry(lines, agent))

    return with_kube_entry(sent, asyncio.run(read()), explanation)


def with_kube_entry(
    sent: SentResponse, logged: LoggedRequest, explanation: Mapping[str, Any]
) -> SentResponse:
    """Return the answer with its entry in the access log, which has the user and the server."""
    agrees = sent.agrees
    if not logged.problem:
        agrees &= logged.user == explanation["user"]["name"]
        agrees &= bool(logged.endpoint) or explanation["outcome"] != "forwarded"
    return sent.judged(agrees, logged)


def _place(objects: ObjectSet, cluster: str) -> _Place:
    key = ("UpstreamCluster", "", cluster)
    with offline_pass(objects.objects) as ask:
        for gateway in ask(gateways_of_cluster, key):
            hosts = ask(cluster_hostnames, (gateway, key)).own
            addresses = ask(gateway_addresses, gateway)
            if hosts and addresses:
                port = ask(cluster_listeners, gateway)[0].port
                host = cluster if cluster in hosts else hosts[0]
                return _Place("/".join(gateway[1:]), host, addresses[0], port)
    raise CLIError(f"no Gateway with an address serves UpstreamCluster {cluster}")


async def _exchange(
    place: _Place, target: KubeTarget, agent: str, user: Configuration | None, outcome: str
) -> SentResponse:
    address = f"[{place.address}]" if ":" in place.address else place.address
    headers = {"Host": f"{place.host}:{place.port}", "User-Agent": agent}
    if user is not None and (token := await user.tokens.token()):
        headers["Authorization"] = f"Bearer {token}"
    timeout = aiohttp.ClientTimeout(total=TIMEOUT_SECONDS)
    try:
        async with (
            aiohttp.ClientSession(timeout=timeout) as session,
            session.request(
                target.method,
                f"https://{address}:{place.port}{target.path}",
                headers=headers,
                json=None if target.method in _READING else {},
                allow_redirects=False,
                ssl=_context(user),
                server_hostname=place.host,
            ) as response,
        ):
            # A watch has no end.
            text = "" if response.status < 400 else await response.text(errors="replace")
            return compare_status(response.status, _message(text), outcome)
    except (aiohttp.ClientError, OSError) as error:
        return SentResponse.compared(f"no answer ({failure_text(error)})", agrees=False)


def _context(user: Configuration | None) -> ssl.SSLContext:
    """Return settings of TLS. Credentials are sent only to a server with a valid certificate."""
    if user is None:
        return unverified()
    context = msgspec.structs.replace(user, server="https://").ssl_context()
    assert context is not None
    return context


def _message(text: str) -> str:
    try:
        return str(json.loads(text)["message"])
    except (ValueError, KeyError, TypeError):
        return ""


def compare_status(status: int, message: str, outcome: str) -> SentResponse:
    """Return whether a status agrees with the outcome of an explanation."""
    if outcome == "forwarded":
        agrees = status not in _GATEWAY_STATUSES and not message.startswith(_NO_POLICY)
    else:
        agrees = outcome.startswith(f"{status}:")
    return SentResponse.compared(f"{status}{f' {message}' if message else ''}", agrees, status)


def find_kube_entry(lines: Sequence[str], agent: str) -> LoggedRequest | None:
    """Return the entry of the request of a user agent, None if there is none."""
    for line in lines:
        if agent not in line:
            continue
        try:
            entry = msgspec.json.decode(line, type=_Entry)
        except msgspec.MsgspecError:
            continue
        if entry.user_agent == agent:
            reason = " ".join(filter(None, (entry.flags, entry.details)))
            return LoggedRequest(reason, entry.endpoint or "", user=entry.user or "")
    return None
