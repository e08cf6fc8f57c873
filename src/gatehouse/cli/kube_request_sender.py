"""`gatehouse explain kube-request --send`: the answer of a Gateway, compared with the decision."""

from __future__ import annotations

import asyncio
import json
import re
import secrets
import ssl
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import aiohttp
import msgspec
from yarl import URL

from gatehouse.cli.connection_sender import TIMEOUT_SECONDS, unverified
from gatehouse.cli.errors import CLIError
from gatehouse.cli.logged_request import LoggedRequest, logged_entries, read_logged
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
from kube_base.types.ip_addresses import bracketed
from kube_base.types.request_info import RequestError, RequestInfo, parse_request

_METHODS = {
    "create": "POST", "get": "GET", "list": "GET", "watch": "GET", "update": "PUT",
    "patch": "PATCH", "delete": "DELETE", "deletecollection": "DELETE",
}  # fmt: skip
_READING = ("GET", "HEAD", "OPTIONS")
_WITH_BODY = ("POST", "PUT", "PATCH")
"""Methods with a body. A kube-apiserver ignores ``dryRun`` in the query of a DELETE with a body."""

_DRY_SUBRESOURCES = (
    "", "approval", "binding", "ephemeralcontainers", "eviction", "finalize", "resize", "scale",
    "status", "token",
)  # fmt: skip
"""Subresources of which a dry run changes nothing. Others may connect to a server."""

_STREAMING_SUBRESOURCES = ("attach", "exec", "portforward")
"""Subresources that a GET with an upgrade changes."""

_EXACT_PATH = re.compile(r"/[!\"$-~]*")
"""A path with query as it is on the wire, without fragment."""

_CLEANED_SEGMENTS = re.compile(r"/\.{0,2}/|/\.{1,2}$")
"""Segments of a decoded path that a proxy or server may remove."""

_GATEWAY_STATUSES = (502, 503, 504)

_NO_POLICY = "no policy of cluster("
"""Start of the message of the Gateway if no policy matches. A server may answer 403, too."""


class KubeTarget(msgspec.Struct, frozen=True):
    """A request as it is sent."""

    method: str
    path: str
    """Path with query."""


class ServingGateway(msgspec.Struct, frozen=True):
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
    """Return the request of a resource as it is sent.

    A request that changes objects is a dry run. Raises CLIError if it cannot be one, and
    for other verbs.
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
    """Return a request that changes nothing. Raises CLIError if there is no such request."""
    if not _EXACT_PATH.fullmatch(target.path):
        raise CLIError(f"--send: path {target.path!r} must be percent-encoded")
    try:
        request = parse_request(target.method, target.path)
    except RequestError as error:
        raise CLIError(f"--send: {error}: not a valid kube-apiserver request") from error
    if _CLEANED_SEGMENTS.search(request.path):
        raise CLIError(f"--send: path {target.path!r} must not have empty segments, . or ..")
    is_reading = target.method in _READING
    if request.subresource in _STREAMING_SUBRESOURCES or not (is_reading or _can_be_dry(request)):
        place = f"subresource {request.combined}" if request.subresource else request.path
        raise CLIError(
            f"--send: {target.method} of {place} cannot be a dry run and may change what it "
            "reaches. Omit --send to see its policy"
        )
    if is_reading:
        return target
    separator = "&" if "?" in target.path else "?"
    return KubeTarget(target.method, f"{target.path}{separator}dryRun=All")


def _can_be_dry(request: RequestInfo) -> bool:
    is_resource = request.is_resource and request.verb != "proxy"
    return is_resource and request.subresource in _DRY_SUBRESOURCES


def send_kube_request(
    kubeconfig: Path,
    objects: ObjectSet,
    target: KubeTarget,
    explanation: Mapping[str, Any],
    credentials: Path | None,
) -> SentResponse:
    """Send a request by the first Gateway that serves a cluster, and compare the answer.

    ``explanation``: as of `gatehouse explain kube-request`. ``credentials``: kubeconfig of the
    user; None: no credentials. Raises CLIError if there is no such Gateway.
    """
    place = _place(objects, explanation["cluster"])
    agent = f"gatehouse-explain/{secrets.token_hex(16)}"
    try:
        user = from_kubeconfig(credentials) if credentials else None
        sent = asyncio.run(
            exchange_kube_request(place, target, agent, user, str(explanation["outcome"]))
        )
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


def _place(objects: ObjectSet, cluster: str) -> ServingGateway:
    key = ("UpstreamCluster", "", cluster)
    with offline_pass(objects.objects) as ask:
        for gateway in ask(gateways_of_cluster, key):
            hosts = ask(cluster_hostnames, gateway, key).own
            addresses = ask(gateway_addresses, gateway)
            if hosts and addresses:
                port = ask(cluster_listeners, gateway)[0].port
                host = cluster if cluster in hosts else hosts[0]
                return ServingGateway("/".join(gateway[1:]), host, addresses[0], port)
    raise CLIError(f"no Gateway with an address serves UpstreamCluster {cluster}")


async def exchange_kube_request(
    place: ServingGateway,
    target: KubeTarget,
    agent: str,
    user: Configuration | None,
    outcome: str,
) -> SentResponse:
    """Send a request to a Gateway, and compare the status with the outcome of an explanation.

    ``agent``: value of User-Agent. ``user``: credentials; None: no credentials.
    """
    server = f"{bracketed(place.address)}:{place.port}"
    headers = {"Host": f"{place.host}:{place.port}", "User-Agent": agent}
    if user is not None and (token := await user.tokens.token()):
        headers["Authorization"] = f"Bearer {token}"
    timeout = aiohttp.ClientTimeout(total=TIMEOUT_SECONDS)
    try:
        async with (
            aiohttp.ClientSession(timeout=timeout) as session,
            session.request(
                target.method,
                URL(f"https://{server}{target.path}", encoded=True),
                headers=headers,
                json={} if target.method in _WITH_BODY else None,
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
    for entry in logged_entries(lines, agent, _Entry):
        if entry.user_agent == agent:
            reason = " ".join(filter(None, (entry.flags, entry.details)))
            return LoggedRequest(reason, entry.endpoint or "", user=entry.user or "")
    return None
