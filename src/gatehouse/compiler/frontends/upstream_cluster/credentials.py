"""Certificates, CA certificates and tokens, from fields of the object or from Secrets.

A field overrides the same value of the Secret. References can name any namespace without a
ReferenceGrant: the object is cluster-scoped, and its author controls all requests of the cluster.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping

import msgspec

from gatehouse.apis import core
from gatehouse.apis import upstream_clusters as api
from gatehouse.compiler.frontends.certificate_validity import Dated, validities_of
from gatehouse.compiler.frontends.gateway_api.inputs import rejected_credential
from gatehouse.compiler.frontends.gateway_api.listeners import ca_certificates, certificates
from gatehouse.compiler.frontends.upstream_cluster.certificate_hosts import LeafCertificate, leaf
from gatehouse.compiler.frontends.upstream_cluster.findings import (
    ClusterFinding,
    ClusterReason,
)
from gatehouse.compiler.frontends.upstream_cluster.servers import translate_servers as read_servers
from gatehouse.compiler.ir.gateway import Certificate, SecretFile, TrustBundle
from gatehouse.compiler.ir.kube_apiserver import UpstreamTls
from gatehouse.dataplane.origin import Origin
from gatehouse.incremental.query import Ask, Key

_NOT_VERIFIED = "spec.clientConfig: no valid CA certificate to verify servers"
_NOT_AUTHENTICATED = "spec.clientConfig: no valid client certificate or bearer token"

_TOKEN = re.compile(rb"[!-~]+")


class TLSCredentials(msgspec.Struct, frozen=True):
    """Credentials towards servers, or towards clients."""

    certificate: Certificate | None = None
    trust: TrustBundle | None = None
    token: SecretFile | None = None
    findings: tuple[ClusterFinding, ...] = ()
    leaf: LeafCertificate | None = None
    """Hostnames of the certificate; None if there is no certificate."""
    dated: tuple[Dated, ...] = ()
    """Validity of the certificate and of the CA certificates."""
    tls: UpstreamTls | None = None
    """TLS settings towards servers; None for plain text and towards clients."""
    refusal: str = ""
    """Why connections to servers are not possible; empty if they are."""
    checks: bool = False
    """The object has its own CA certificates for clients, valid or not."""
    rejected: tuple[tuple[str, str], ...] = ()
    """Kinds of credentials that a Gateway's proxy rejected, each with the reason."""


class _Source:
    """Credentials of one section of the object, each from its field or its Secret."""

    def __init__(self, ask: Ask, key: Key, where: str, reference: api.SecretRef | None) -> None:
        self._key = key
        self.where = where
        self.findings: list[ClusterFinding] = []
        self.leaf: LeafCertificate | None = None
        """Hostnames of the key pair, once it was parsed."""
        self.dated: list[Dated] = []
        """Validity of what was parsed."""
        self._reference = reference
        self._secret = self._read(ask, reference) if reference is not None else {}
        self.missing = bool(self.findings)
        """The Secret cannot be read, so that its contents are unknown."""

    def _read(self, ask: Ask, reference: api.SecretRef) -> Mapping[str, str]:
        secret = ask.read(("Secret", reference.namespace, reference.name))
        self._named = f"Secret {reference.namespace}/{reference.name}"
        if isinstance(secret, core.Secret):
            return secret.data
        why = "not found" if secret is None else "is invalid"
        message = f"{self.where}.secretRef: {self._named} {why}"
        self.findings.append(ClusterFinding(ClusterReason.INVALID_CREDENTIALS, message))
        return {}

    def has(self, inline: str, key: str) -> bool:
        """Return whether a value is set."""
        return bool(inline) or key in self._secret

    def value(self, field: str, inline: str, key: str) -> tuple[bytes, str]:
        """Return a value and its source; empty if it is not set or invalid."""
        if not self.has(inline, key):
            return b"", ""
        place = (
            f"{self.where}.{field}" if inline else f"{self.where}.secretRef: {self._named} {key}"
        )
        try:
            return base64.b64decode(inline or self._secret[key], validate=True), place
        except ValueError:
            self.add_problem(place, "must be base64")
            return b"", ""

    def _name(self, field: str, inline: str, key: str) -> str:
        """Return the name of a value for messages that already have its source."""
        if inline or self._reference is None:
            return field
        return f"{key} of {self._named}"

    def _origin(self, field: str, inline: str) -> Origin:
        """Return the origin of a value."""
        if inline or self._reference is None:
            part = f"{self.where.removeprefix('spec.')}.{field}"
            return Origin(self._key[0], self._key[1], self._key[2], part)
        return Origin("Secret", self._reference.namespace, self._reference.name)

    def add_problem(self, place: str, why: str) -> None:
        """Record that a value is invalid."""
        self.findings.append(ClusterFinding(ClusterReason.INVALID_CREDENTIALS, f"{place}: {why}"))

    def certificate(self, chain: str, key: str) -> Certificate | None:
        """Return the key pair; None if it is not set or invalid."""
        findings_before = len(self.findings)
        pem, place = self.value("certData", chain, "tls.crt")
        private, other = self.value("keyData", key, "tls.key")
        if not pem and not private:
            return None
        names = (self._name("certData", chain, "tls.crt"), self._name("keyData", key, "tls.key"))
        if not pem or not private:
            if len(self.findings) == findings_before:
                self.add_problem(
                    place or other, f"{names[1] if pem else names[0]} must be set, too"
                )
            return None
        pair = certificates.key_pair(pem, private, names, origin=self._origin("certData", chain))
        if isinstance(pair, str):
            self.add_problem(self.where, pair)
            return None
        self.leaf = leaf(pem, place)
        if pair.validity is not None:
            self.dated.append(Dated(place, (pair.validity,)))
        return pair

    def trust(self, field: str, inline: str) -> TrustBundle | None:
        """Return the trust bundle; None if it is not set or invalid."""
        pem, place = self.value(field, inline, "ca.crt")
        if not pem:
            return None
        bundle = ca_certificates.of_certificates(pem, self._origin(field, inline))
        if bundle is None:
            self.add_problem(place, "must be PEM certificates")
        else:
            self.dated.append(Dated(place, validities_of(bundle.pem)))
        return bundle

    def token(self, inline: str) -> SecretFile | None:
        """Return the bearer token; None if it is not set or invalid."""
        value, place = self.value("bearerToken", inline, "token")
        value = value.strip()
        if not value:
            return None
        if not _TOKEN.fullmatch(value):
            self.add_problem(place, "must be a valid header value")
            return None
        return SecretFile.make("token", value, self._origin("bearerToken", inline))


def server_credentials(ask: Ask, key: Key) -> TLSCredentials:
    """Return the TLS settings and credentials for a cluster's servers."""
    cluster = ask.read(key)
    assert isinstance(cluster, api.UpstreamCluster)
    config = cluster.spec.client_config
    source = _Source(ask, key, "spec.clientConfig", config.secret_ref)
    certificate = source.certificate(config.cert_data, config.key_data)
    bundle = source.trust("caData", config.ca_data)
    token = source.token(config.bearer_token)
    if read_servers(cluster.spec.servers).scheme != "https":
        return TLSCredentials(None, None, token, tuple(source.findings))
    refusal = ""
    if bundle is None and not (config.insecure and not config.ca_data):
        refusal = _NOT_VERIFIED
    elif certificate is None and token is None:
        refusal = _NOT_AUTHENTICATED
    tls = UpstreamTls(
        server_name=config.server_name or cluster.metadata.name,
        trust=bundle.name if bundle is not None else "",
        certificate=certificate.name if certificate is not None else "",
    )
    return TLSCredentials(
        certificate,
        bundle,
        token,
        tuple(source.findings),
        dated=tuple(source.dated),
        tls=tls,
        refusal=refusal,
    )


def client_credentials(ask: Ask, key: Key) -> TLSCredentials:
    """Return a cluster's certificate for clients, and the CA certificates to verify them."""
    cluster = ask.read(key)
    assert isinstance(cluster, api.UpstreamCluster)
    serving = cluster.spec.secure_serving
    source = _Source(ask, key, "spec.secureServing", serving.secret_ref)
    certificate = source.certificate(serving.cert_data, serving.key_data)
    bundle = source.trust("clientCAData", serving.client_ca_data)
    checks = source.missing or source.has(serving.client_ca_data, "ca.crt")
    return TLSCredentials(
        certificate,
        bundle,
        None,
        tuple(source.findings),
        source.leaf,
        tuple(source.dated),
        checks=checks,
    )


def credentials_at(ask: Ask, gateway: Key, key: Key) -> tuple[TLSCredentials, TLSCredentials]:
    """Return the credentials of a cluster towards servers and towards clients at a Gateway.

    What the Gateway's proxy rejected is left out.
    """
    every = ask(server_credentials, key)
    servers = _accepted(ask, gateway, every)
    clients = _accepted(ask, gateway, ask(client_credentials, key))
    left_out = any(getattr(servers, field) is not getattr(every, field) for field in _KINDS)
    if left_out and servers.tls is not None:
        certificate = servers.certificate.name if servers.certificate is not None else ""
        tls = msgspec.structs.replace(servers.tls, certificate=certificate)
        refusal = servers.refusal
        if servers.trust is None and tls.trust:
            refusal = refusal or _NOT_VERIFIED
        elif not certificate and servers.token is None:
            refusal = refusal or _NOT_AUTHENTICATED
        servers = msgspec.structs.replace(servers, tls=tls, refusal=refusal)
    return servers, clients


_KINDS = {"certificate": "certificate", "trust": "CA certificates", "token": "bearer token"}
"""Names of credentials in messages, by field."""


def _accepted(ask: Ask, gateway: Key, credentials: TLSCredentials) -> TLSCredentials:
    held = {field: getattr(credentials, field) for field in _KINDS}
    names = {field: credential.name for field, credential in held.items() if credential is not None}
    rejected = {
        field: why
        for field, name in names.items()
        if (why := rejected_credential(ask, gateway, name, tried=True))
    }
    if not rejected:
        return credentials
    # What the proxy tests again is used.
    left_out = [field for field in rejected if rejected_credential(ask, gateway, names[field])]
    named = tuple((_KINDS[field], why) for field, why in rejected.items())
    return msgspec.structs.replace(credentials, **dict.fromkeys(left_out), rejected=named)


def dated_certificates(ask: Ask, key: Key) -> tuple[Dated, ...]:
    """Return the certificates and CA certificates of a cluster with their validity."""
    if not isinstance(ask.read(key), api.UpstreamCluster):
        return ()
    return (*ask(client_credentials, key).dated, *ask(server_credentials, key).dated)
