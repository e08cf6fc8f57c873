"""Certificates, authorities and tokens: those that stand in the object, and those in Secrets.

What stands in the object goes before what the Secret has of the same. References may lead into any
namespace, without a ReferenceGrant: the object has no namespace, and who writes it decides where
all of a cluster's requests go.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Mapping

import msgspec

from gatehouse.apis import core
from gatehouse.apis import upstream_clusters as api
from gatehouse.compiler.frontends.gateway_api.listeners import ca_certificates, certificates
from gatehouse.compiler.frontends.upstream_cluster.certificate_validity import Leaf, leaf
from gatehouse.compiler.frontends.upstream_cluster.findings import Finding, Reason
from gatehouse.compiler.frontends.upstream_cluster.servers import read as read_servers
from gatehouse.compiler.ir.gateway import Certificate, SecretBytes, SecretFile, TrustBundle
from gatehouse.compiler.ir.kube_apiserver import UpstreamTls
from gatehouse.incremental.query import Ask, Key

_TOKEN = re.compile(rb"[!-~]+")


class TLSCredentials(msgspec.Struct, frozen=True):
    """What is shown to servers, or to clients, and what others are checked by."""

    certificate: Certificate | None = None
    trust: TrustBundle | None = None
    token: SecretFile | None = None
    findings: tuple[Finding, ...] = ()
    leaf: Leaf | None = None
    """What is known of the certificate."""
    tls: UpstreamTls | None = None
    """Towards servers only; None: plain text."""
    refusal: str = ""
    """Why servers cannot be spoken to at all."""
    checks: bool = False
    """Towards clients: whether authorities are given here, be they good or not."""


class _Source:
    """The values of one place of the object, each from there or from its Secret."""

    def __init__(self, ask: Ask, where: str, reference: api.SecretRef | None) -> None:
        self.where = where
        self.findings: list[Finding] = []
        self.leaf: Leaf | None = None
        """Of the key pair, once that was read."""
        self._reference = reference
        self._secret = self._read(ask, reference) if reference is not None else {}
        self.missing = bool(self.findings)
        """Whether the Secret cannot be read, so that nobody knows what is in it."""

    def _read(self, ask: Ask, reference: api.SecretRef) -> Mapping[str, str]:
        secret = ask.read(("Secret", reference.namespace, reference.name))
        self._named = f"Secret {reference.namespace}/{reference.name}"
        if isinstance(secret, core.Secret):
            return secret.data
        why = "does not exist" if secret is None else "cannot be read"
        message = f"{self.where}.secretRef: {self._named} {why}"
        self.findings.append(Finding(Reason.INVALID_CREDENTIALS, message))
        return {}

    def has(self, inline: str, key: str) -> bool:
        """Whether a value is given at all."""
        return bool(inline) or key in self._secret

    def value(self, field: str, inline: str, key: str) -> tuple[bytes, str]:
        """Give a value and where it stands; empty for none."""
        if not self.has(inline, key):
            return b"", ""
        place = (
            f"{self.where}.{field}" if inline else f"{self.where}.secretRef: {self._named} {key}"
        )
        try:
            return base64.b64decode(inline or self._secret[key], validate=True), place
        except ValueError:
            self.trouble(place, "it is not base64")
            return b"", ""

    def _name(self, field: str, inline: str, key: str) -> str:
        """Give the name of a value for messages that have the place already."""
        if inline or self._reference is None:
            return field
        return f"{key} of {self._named}"

    def trouble(self, place: str, why: str) -> None:
        """Note that a value cannot be used."""
        self.findings.append(Finding(Reason.INVALID_CREDENTIALS, f"{place}: {why}"))

    def certificate(self, chain: str, key: str) -> Certificate | None:
        """Give the key pair."""
        said = len(self.findings)
        pem, place = self.value("certData", chain, "tls.crt")
        private, other = self.value("keyData", key, "tls.key")
        if not pem and not private:
            return None
        names = (self._name("certData", chain, "tls.crt"), self._name("keyData", key, "tls.key"))
        if not pem or not private:
            if len(self.findings) == said:
                self.trouble(place or other, f"there is no {names[1] if pem else names[0]} with it")
            return None
        found = certificates.key_pair(pem, private, names)
        if isinstance(found, str):
            self.trouble(self.where, found)
            return None
        self.leaf = leaf(pem, place)
        return found

    def trust(self, field: str, inline: str) -> TrustBundle | None:
        """Give the authorities."""
        pem, place = self.value(field, inline, "ca.crt")
        if not pem:
            return None
        found = ca_certificates.of_certificates(pem)
        if found is None:
            self.trouble(place, "it holds no PEM certificates")
        return found

    def token(self, inline: str) -> SecretFile | None:
        """Give the bearer token."""
        value, place = self.value("bearerToken", inline, "token")
        value = value.strip()
        if not value:
            return None
        if not _TOKEN.fullmatch(value):
            self.trouble(place, "it cannot be sent in a header")
            return None
        digest = hashlib.sha256(value).hexdigest()[:24]
        return SecretFile(f"token-{digest}", SecretBytes(value))


def server_credentials(ask: Ask, key: Key) -> TLSCredentials:
    """Give how a cluster's servers are spoken to."""
    found = ask.read(key)
    assert isinstance(found, api.UpstreamCluster)
    config = found.spec.client_config
    source = _Source(ask, "spec.clientConfig", config.secret_ref)
    certificate = source.certificate(config.cert_data, config.key_data)
    bundle = source.trust("caData", config.ca_data)
    token = source.token(config.bearer_token)
    if read_servers(found.spec.servers).scheme != "https":
        return TLSCredentials(None, None, token, tuple(source.findings))
    refusal = ""
    if bundle is None and not (config.insecure and not config.ca_data):
        refusal = "spec.clientConfig: there is nothing to verify the servers by"
    elif certificate is None and token is None:
        refusal = "spec.clientConfig: there is nothing to show to the servers"
    tls = UpstreamTls(
        server_name=config.server_name or found.metadata.name,
        trust=bundle.name if bundle is not None else "",
        certificate=certificate.name if certificate is not None else "",
    )
    return TLSCredentials(
        certificate, bundle, token, tuple(source.findings), source.leaf, tls, refusal
    )


def client_credentials(ask: Ask, key: Key) -> TLSCredentials:
    """Give what is shown to a cluster's clients, and what their certificates are checked by."""
    found = ask.read(key)
    assert isinstance(found, api.UpstreamCluster)
    serving = found.spec.secure_serving
    source = _Source(ask, "spec.secureServing", serving.secret_ref)
    certificate = source.certificate(serving.cert_data, serving.key_data)
    bundle = source.trust("clientCAData", serving.client_ca_data)
    checks = source.missing or source.has(serving.client_ca_data, "ca.crt")
    return TLSCredentials(
        certificate, bundle, None, tuple(source.findings), source.leaf, checks=checks
    )


def certificate_times(ask: Ask, key: Key) -> tuple[int, ...]:
    """Give when certificates of a cluster begin and cease to be valid; seconds since 1970."""
    if not isinstance(ask.read(key), api.UpstreamCluster):
        return ()
    towards = (ask(server_credentials, key), ask(client_credentials, key))
    leaves = [each.leaf for each in towards if each.leaf is not None]
    return tuple(moment for each in leaves for moment in (each.starts, each.ends))
