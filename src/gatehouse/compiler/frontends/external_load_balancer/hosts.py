"""How each host is reached, and with which certificates."""

from __future__ import annotations

import base64
import binascii
from urllib.parse import urlsplit

import msgspec

from gatehouse.apis import core
from gatehouse.apis.external_load_balancers import SecretRef, Spec
from gatehouse.compiler.frontends.external_load_balancer.findings import Finding, Reason
from gatehouse.compiler.frontends.external_load_balancer.sources import MACHINES, spec_of
from gatehouse.compiler.ir import load_balancing as ir
from gatehouse.compiler.ir.gateway import SecretBytes
from gatehouse.incremental.query import Ask, Key


class HostConfigs(msgspec.Struct, frozen=True):
    """The hosts that can be spoken to, and what is to be said of the others."""

    hosts: tuple[ir.Host, ...] = ()
    findings: tuple[Finding, ...] = ()
    refused: bool = False
    """Whether there is nothing to go on with."""


class _MissingError(ValueError):
    """A Secret that is not there, or does not hold what it should."""


def host_configs(ask: Ask, key: Key) -> HostConfigs:
    """Give the hosts of a load balancer."""
    spec = ask(spec_of, key)
    if isinstance(spec, Finding):
        return HostConfigs(findings=(spec,), refused=True)
    if spec.type in MACHINES:
        # These come to us.
        return HostConfigs()
    try:
        tls = _tls(ask, key[1], spec)
        authorization = _authorization(ask, key[1], spec)
    except _MissingError as error:
        return HostConfigs(findings=(Finding(Reason.INVALID_SECRET, str(error)),), refused=True)
    hosts, findings = list[ir.Host](), list[Finding]()
    for number, host in enumerate(spec.hosts):
        problem = _problem(host.url)
        if problem:
            where = f"spec.hosts[{number}].url" if key[0] != "ConfigMap" else "data.nginx-hosts"
            findings.append(Finding(Reason.INVALID_HOST, f"{where}: {host.url!r} {problem}"))
        elif host.url.rstrip("/") not in {each.url for each in hosts}:
            hosts.append(ir.Host(host.url.rstrip("/"), tls, authorization))
    if not tls.verify and any(host.url.startswith("https:") for host in hosts):
        message = "certificates of hosts are not checked, as asked for: anybody may pass for one"
        findings.append(Finding(Reason.NOT_VERIFIED, message))
    return HostConfigs(tuple(hosts), tuple(findings))


def _problem(url: str) -> str:
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError as error:
        return f"is no URL: {error}"
    if parts.scheme not in ("http", "https") or not parts.hostname:
        return "is not of the form http(s)://host[:port]/api"
    if parts.username or parts.query or parts.fragment:
        return "has more than host, port and path"
    return ""


def _tls(ask: Ask, namespace: str, spec: Spec) -> ir.Tls:
    authority, client = spec.tls.ca_certificate_ref, spec.tls.client_certificate_ref
    trust = certificate = key = b""
    if authority is not None:
        trust = _held(ask, namespace, authority, *([authority.key] if authority.key else _TRUST))
    if client is not None:
        certificate = _held(ask, namespace, client, "tls.crt")
        key = _held(ask, namespace, client, "tls.key")
    return ir.Tls(
        spec.tls.mode == "Verify", trust, certificate, SecretBytes(key), spec.tls.server_name
    )


_TRUST = ("ca.crt", "tls.crt")


def _authorization(ask: Ask, namespace: str, spec: Spec) -> SecretBytes:
    named = spec.authorization_secret_ref
    if named is None:
        return SecretBytes(b"")
    value = _held(ask, namespace, named, named.key or "authorization").strip()
    if not value.isascii() or any(byte < 32 for byte in value):
        raise _MissingError(f"Secret {namespace}/{named.name} does not hold the value of a header")
    return SecretBytes(value)


def _held(ask: Ask, namespace: str, named: SecretRef, *keys: str) -> bytes:
    """Give the first of the keys that a Secret has. Raises _MissingError."""
    where = f"Secret {namespace}/{named.name}"
    secret = ask.read(("Secret", namespace, named.name))
    if not isinstance(secret, core.Secret):
        raise _MissingError(f"{where} does not exist")
    for key in keys:
        if key in secret.data:
            try:
                found = base64.b64decode(secret.data[key], validate=True)
            except binascii.Error as error:
                raise _MissingError(f"{where}: {key} is not base64") from error
            if found:
                return found
    raise _MissingError(f"{where} has no {' or '.join(keys)}")
