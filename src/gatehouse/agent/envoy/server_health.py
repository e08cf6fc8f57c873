"""Reasons why kube-apiservers are not ready, for the control plane.

Envoy reports only that a health check failed. So the agent sends the health check of a server that
is not ready itself, as Envoy's configuration describes it, and reports how that fails.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import socket
import ssl
from collections.abc import Callable, Iterator, Mapping
from typing import Any
from urllib.parse import quote, unquote

import msgspec
from envoy.config.cluster.v3 import cluster_pb2
from envoy.config.endpoint.v3 import endpoint_components_pb2, endpoint_pb2
from envoy.extensions.transport_sockets.tls.v3 import secret_pb2, tls_pb2

from gatehouse.agent.envoy.admin import AdminClient
from gatehouse.dataplane.unready_servers import (
    MAX_SERVERS,
    MAX_UNREADY_REASON_CHARACTERS,
    SERVERS_PREFIX,
    UnreadyServers,
)
from gatehouse.dataplane.xds.resources import (
    CLUSTER_TYPE_URL,
    ENDPOINTS_TYPE_URL,
    SECRET_TYPE_URL,
    ResourceSet,
)
from kube_base.types.ip_addresses import bracketed

SERVER_POLL_SECONDS = 5.0
"""Interval between two queries of Envoy."""

CHECK_TIMEOUT_SECONDS = 5.0
_METADATA = re.compile(r"%UPSTREAM_METADATA\(([^:)]+):([^:)]+)\)%")
"""Header value that is a metadata value of the endpoint."""

_CHECKS_AT_ONCE = 8

_STATUS = f"/clusters?format=json&filter={quote(f'^{SERVERS_PREFIX}[^/]*$', safe='')}"


class ServerCheck(msgspec.Struct, frozen=True):
    """The health check of one server."""

    cluster: str
    """Name of the UpstreamCluster."""
    host: str
    port: int
    request: bytes
    tls: ssl.SSLContext | None = None
    server_name: str = ""

    @property
    def server(self) -> str:
        """Host and port, as in URLs."""
        return f"{bracketed(self.host)}:{self.port}"

    async def failure(self) -> str:
        """Return how the check fails; empty if it succeeds."""
        try:
            async with asyncio.timeout(CHECK_TIMEOUT_SECONDS):
                return await self._check()
        except TimeoutError:
            return f"no response within {CHECK_TIMEOUT_SECONDS:g} s"
        except ssl.SSLCertVerificationError as error:
            return f"TLS: certificate not valid: {error.verify_message}"
        except ssl.SSLError as error:
            return f"TLS: {error.reason or error}"
        except socket.gaierror as error:
            return f"name not resolved: {error.strerror}"
        except OSError as error:
            return os.strerror(error.errno).lower() if error.errno else "connection lost"

    async def _check(self) -> str:
        reader, writer = await asyncio.open_connection(
            self.host, self.port, ssl=self.tls, server_hostname=self.server_name or None
        )
        try:
            writer.write(self.request)
            line = await reader.readline()
        finally:
            writer.transport.abort()
        fields = line.split(None, 2)
        if len(fields) < 2 or not fields[0].startswith(b"HTTP/") or not fields[1].isdigit():
            return "no HTTP response" if line else "connection closed without a response"
        return "" if fields[1] == b"200" else f"/readyz: status {fields[1].decode()}"


def server_checks(held: ResourceSet, ready: frozenset[tuple[str, str, int]]) -> list[ServerCheck]:
    """Return the checks of configured servers that are not in `ready`: cluster, host, port."""
    checks: list[ServerCheck] = []
    for name, resource in sorted(held.by_type.get(CLUSTER_TYPE_URL, {}).items()):
        if not name.startswith(SERVERS_PREFIX) or "/" in name:
            continue
        cluster = cluster_pb2.Cluster.FromString(resource.body)
        unready = [
            endpoint
            for endpoint in _endpoints(held, cluster)
            if (name, *_address(endpoint)) not in ready
        ]
        if not unready:
            continue
        tls, server_name = _tls(held, cluster)
        for endpoint in unready[: MAX_SERVERS - len(checks)]:
            of = unquote(name.removeprefix(SERVERS_PREFIX))
            request = _request(cluster, endpoint)
            checks.append(ServerCheck(of, *_address(endpoint), request, tls, server_name))
    return checks


def _endpoints(
    held: ResourceSet, cluster: cluster_pb2.Cluster
) -> Iterator[endpoint_components_pb2.LbEndpoint]:
    assignment = cluster.load_assignment
    resource = held.by_type.get(ENDPOINTS_TYPE_URL, {}).get(cluster.name)
    if resource is not None and not assignment.endpoints:
        assignment = endpoint_pb2.ClusterLoadAssignment.FromString(resource.body)
    for locality in assignment.endpoints:
        yield from locality.lb_endpoints


def _address(endpoint: endpoint_components_pb2.LbEndpoint) -> tuple[str, int]:
    address = endpoint.endpoint.address.socket_address
    return address.address, address.port_value


def _header_value(value: str, endpoint: endpoint_components_pb2.LbEndpoint) -> str:
    """Return a header value as Envoy formats it: text, or a metadata value of the endpoint."""
    if match := _METADATA.fullmatch(value):
        namespace, key = match.groups()
        return endpoint.metadata.filter_metadata[namespace].fields[key].string_value
    return value.replace("%%", "%")


def _request(cluster: cluster_pb2.Cluster, endpoint: endpoint_components_pb2.LbEndpoint) -> bytes:
    check = cluster.health_checks[0].http_health_check
    headers = [f"Host: {check.host}", "Connection: close", "User-Agent: gatehouse-agent"]
    headers += [
        f"{option.header.key}: {_header_value(option.header.value, endpoint)}"
        for option in check.request_headers_to_add
    ]
    text = "\r\n".join((f"GET {check.path} HTTP/1.1", *headers, "", ""))
    return text.encode("utf-8", "surrogateescape")


def _tls(held: ResourceSet, cluster: cluster_pb2.Cluster) -> tuple[ssl.SSLContext | None, str]:
    """Return the TLS context of a cluster and the name that certificates must have."""
    if not cluster.HasField("transport_socket"):
        return None, ""
    config = tls_pb2.UpstreamTlsContext()
    cluster.transport_socket.typed_config.Unpack(config)
    common = config.common_tls_context
    secrets = held.by_type.get(SECRET_TYPE_URL, {})
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    trust = secrets.get(
        common.combined_validation_context.validation_context_sds_secret_config.name
    )
    if trust is None:
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    else:
        secret = secret_pb2.Secret.FromString(trust.body).validation_context
        with contextlib.suppress(ssl.SSLError, ValueError):
            context.load_verify_locations(cadata=secret.trusted_ca.inline_bytes.decode())
    for reference in common.tls_certificate_sds_secret_configs:
        if (key_pair := secrets.get(reference.name)) is not None:
            _load_certificate(context, secret_pb2.Secret.FromString(key_pair.body))
    names = common.combined_validation_context.default_validation_context
    matchers = names.match_typed_subject_alt_names
    return context, matchers[0].matcher.exact if matchers else config.sni


def _load_certificate(context: ssl.SSLContext, secret: secret_pb2.Secret) -> None:
    certificate = secret.tls_certificate
    pem = certificate.certificate_chain.inline_bytes + b"\n" + certificate.private_key.inline_bytes
    # The module `ssl` reads key pairs from files only. This one is in memory.
    with os.fdopen(os.memfd_create("certificate"), "wb") as file, contextlib.suppress(ssl.SSLError):
        file.write(pem)
        file.flush()
        context.load_cert_chain(f"/proc/self/fd/{file.fileno()}")


def parse_ready_servers(text: str) -> frozenset[tuple[str, str, int]] | None:
    """Return cluster, host and port of the servers that Envoy uses; None if the text is invalid.

    A server by hostname is ready if one of its addresses is.
    """
    try:
        return frozenset(_ready(json.loads(text)))
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def _ready(status: Mapping[str, Any]) -> Iterator[tuple[str, str, int]]:
    for cluster in status.get("cluster_statuses", ()):
        for host_status in cluster.get("host_statuses", ()):
            address = host_status["address"]["socket_address"]
            health = host_status.get("health_status", {})
            if not any(value for key, value in health.items() if key.startswith("failed_")):
                host = host_status.get("hostname") or address["address"]
                yield cluster["name"], host, address["port_value"]


class ServerHealthMonitor:
    """Finds servers that are not ready, and reports the reasons when they change."""

    def __init__(
        self,
        admin: AdminClient,
        held: Callable[[], ResourceSet],
        report: Callable[[UnreadyServers], None],
    ) -> None:
        self._admin, self._held, self._report = admin, held, report
        self._before: frozenset[tuple[str, str]] = frozenset()
        """Servers that were not ready in the previous poll: a server is reported after two."""

    async def run(self) -> None:
        """Poll until cancelled."""
        while True:
            await asyncio.sleep(SERVER_POLL_SECONDS)
            await self.poll()

    async def poll(self) -> None:
        """Query Envoy, check the servers that are not ready, and report."""
        try:
            _, text = await self._admin.get(_STATUS)
        except OSError:
            return
        ready = parse_ready_servers(text)
        if ready is None:
            return
        checks = server_checks(self._held(), ready)
        unready = frozenset((check.cluster, check.server) for check in checks)
        again, self._before = unready & self._before, unready
        due = [check for check in checks if (check.cluster, check.server) in again]
        limit = asyncio.Semaphore(_CHECKS_AT_ONCE)

        async def reason(check: ServerCheck) -> str:
            async with limit:
                failure = await check.failure()
            return (failure or "health check of Envoy fails")[:MAX_UNREADY_REASON_CHARACTERS]

        reasons = await asyncio.gather(*map(reason, due))
        result: dict[str, dict[str, str]] = {}
        for check, why in zip(due, reasons, strict=True):
            result.setdefault(check.cluster, {})[check.server] = why
        self._report(result)
