"""Hosts of a load balancer: URL, TLS settings and credentials."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator
from urllib.parse import urlsplit

import msgspec

from gatehouse.apis import core
from gatehouse.apis.external_load_balancers import LoadBalancerSpec, LocalSecretRef
from gatehouse.compiler.frontends.certificate_validity import (
    Dated,
    Validity,
    problems,
    validities_of,
    validity_deadlines,
)
from gatehouse.compiler.frontends.external_load_balancer import nlk_config
from gatehouse.compiler.frontends.external_load_balancer.findings import (
    LoadBalancerFinding,
    LoadBalancerReason,
)
from gatehouse.compiler.frontends.external_load_balancer.sources import MACHINES, spec_of
from gatehouse.compiler.ir import load_balancing as ir
from gatehouse.compiler.ir.gateway import SecretBytes
from gatehouse.incremental.query import Ask, Key


class HostConfigs(msgspec.Struct, frozen=True):
    """The usable hosts of a load balancer, and findings about the others."""

    hosts: tuple[ir.Host, ...] = ()
    findings: tuple[LoadBalancerFinding, ...] = ()
    refused: bool = False
    """The source is invalid, and no configuration is possible."""
    tls: ir.HostTls | None = None
    """TLS settings of the hosts; None: there are no usable ones."""


class _InvalidSecretError(ValueError):
    """A missing or invalid Secret."""


def host_configs(ask: Ask, key: Key) -> HostConfigs:
    """Return the hosts of a load balancer."""
    spec = ask(spec_of, key)
    if isinstance(spec, LoadBalancerFinding):
        return HostConfigs(findings=(spec,), refused=True)
    if spec.type in MACHINES:
        # Agents on machines connect to the controller.
        return HostConfigs()
    try:
        tls = _tls(ask, key[1], spec)
        authorization = _authorization(ask, key, spec)
    except _InvalidSecretError as error:
        return HostConfigs(
            findings=(LoadBalancerFinding(LoadBalancerReason.INVALID_SECRET, str(error)),),
            refused=True,
        )
    config = ask.read(key)
    generation = nlk_config.nlk_generation(config) if isinstance(config, core.ConfigMap) else None
    hosts = list[ir.Host]()
    findings = list(generation.findings(config) if generation else ())
    for number, host in enumerate(spec.hosts):
        problem = _problem(host.url)
        if problem:
            where = f"{generation.fields}nginx-hosts" if generation else f"spec.hosts[{number}].url"
            findings.append(
                LoadBalancerFinding(
                    LoadBalancerReason.INVALID_HOST, f"{where}: {host.url!r} {problem}"
                )
            )
        elif host.url.rstrip("/") not in {other.url for other in hosts}:
            hosts.append(ir.Host(host.url.rstrip("/"), tls, authorization))
    client = spec.tls.client_certificate_ref
    if client is not None and client.key:
        message = "spec.tls.clientCertificateRef.key: not supported; using tls.crt and tls.key"
        findings.append(LoadBalancerFinding(LoadBalancerReason.UNSUPPORTED, message))
    if not tls.verify and any(host.url.startswith("https:") for host in hosts):
        field = (
            f"{generation.fields}tls-mode does not verify"
            if generation
            else "spec.tls.mode is SkipVerify"
        )
        message = f"{field}: host certificates are not verified"
        findings.append(LoadBalancerFinding(LoadBalancerReason.NOT_VERIFIED, message))
    findings += [
        LoadBalancerFinding(LoadBalancerReason[name], message)
        for name, message in problems(ask, _dated(key[1], spec, tls))
    ]
    return HostConfigs(tuple(hosts), tuple(findings), tls=tls)


def balancer_deadlines(ask: Ask, key: Key) -> tuple[int, ...]:
    """Return the times in Unix seconds at which findings of a load balancer change."""
    spec, tls = ask(spec_of, key), ask(host_configs, key).tls
    if isinstance(spec, LoadBalancerFinding) or tls is None:
        return ()
    return validity_deadlines(_dated(key[1], spec, tls))


def _dated(namespace: str, spec: LoadBalancerSpec, tls: ir.HostTls) -> Iterator[Dated]:
    """Yield the CA certificates and the client certificate with their validity."""
    for field, reference, validities in (
        ("caCertificateRef", spec.tls.ca_certificate_ref, _validities(tls.trust)),
        # The certificates after the first one are those of CAs.
        ("clientCertificateRef", spec.tls.client_certificate_ref, _validities(tls.certificate)[:1]),
    ):
        if reference is not None and validities:
            place = f"spec.tls.{field}: Secret {namespace}/{reference.name}"
            yield Dated(place, validities)


def _validities(pem: bytes) -> tuple[Validity, ...]:
    try:
        return validities_of(pem) if pem else ()
    except ValueError:
        # Connections to the hosts fail with the reason.
        return ()


def _problem(url: str) -> str:
    if not url.isprintable() or " " in url:
        return "must have no spaces and no control characters"
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError as error:
        return f"must be a URL: {error}"
    if parts.scheme not in ("http", "https") or not parts.hostname:
        return "must have the form http(s)://host[:port]/api"
    if parts.username or parts.query or parts.fragment:
        return "must have only host, port and path"
    return ""


def _tls(ask: Ask, namespace: str, spec: LoadBalancerSpec) -> ir.HostTls:
    authority, client = spec.tls.ca_certificate_ref, spec.tls.client_certificate_ref
    trust = certificate = key = b""
    if authority is not None:
        trust = _secret_value(
            ask, namespace, authority, *([authority.key] if authority.key else _TRUST)
        )
    if client is not None:
        certificate = _secret_value(ask, namespace, client, "tls.crt")
        key = _secret_value(ask, namespace, client, "tls.key")
    return ir.HostTls(
        spec.tls.mode == "Verify", trust, certificate, SecretBytes(key), spec.tls.server_name
    )


_TRUST = ("ca.crt", "tls.crt")


def _authorization(ask: Ask, key: Key, spec: LoadBalancerSpec) -> SecretBytes:
    namespace, config, reference = key[1], ask.read(key), spec.authorization_secret_ref
    if isinstance(config, core.ConfigMap):
        return _nlk_authorization(ask, key, config)
    if reference is None:
        return SecretBytes(b"")
    value = _secret_value(ask, namespace, reference, reference.key or "authorization").strip()
    if not value.isascii() or any(byte < 32 for byte in value):
        raise _InvalidSecretError(
            f"Secret {namespace}/{reference.name}: must be a valid header value"
        )
    return SecretBytes(value)


def _nlk_authorization(ask: Ask, key: Key, config: core.ConfigMap) -> SecretBytes:
    """Return the header with the API key: from its Secret if that exists, else from the file."""
    generation = nlk_config.nlk_generation(config)
    reference, api_key = generation.key_secret(key[2]), generation.api_key(config).encode()
    secret = ask.read(("Secret", key[1], reference.name)) if reference else None
    if reference and isinstance(secret, core.Secret) and secret.data.get(reference.key) != "":
        api_key = _secret_value(ask, key[1], reference, reference.key)
    header = b"ApiKey " + base64.b64encode(api_key)
    return SecretBytes(header if api_key else b"")


def _secret_value(ask: Ask, namespace: str, reference: LocalSecretRef, *keys: str) -> bytes:
    """Return the value of the first of ``keys`` that a Secret has. Raises _InvalidSecretError."""
    where = f"Secret {namespace}/{reference.name}"
    secret = ask.read(("Secret", namespace, reference.name))
    if not isinstance(secret, core.Secret):
        raise _InvalidSecretError(f"{where} not found")
    for key in keys:
        if key in secret.data:
            try:
                value = base64.b64decode(secret.data[key], validate=True)
            except binascii.Error as error:
                raise _InvalidSecretError(f"{where}: data[{key}] must be base64") from error
            if value:
                return value
    entries = " or ".join(f"data[{key}]" for key in keys)
    raise _InvalidSecretError(f"{where}: {entries} not found")
