"""Certificates of listeners: from references to Secrets to verified key pairs."""

from __future__ import annotations

import base64
from typing import Literal

from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey, RSAPublicKey
from cryptography.hazmat.primitives.asymmetric.types import CertificatePublicKeyTypes

from gatehouse.apis import core, gateway
from gatehouse.compiler.frontends import pem, rsa_keys
from gatehouse.compiler.frontends.certificate_names import dns_names, validity_of
from gatehouse.compiler.frontends.gateway_api.findings import Finding, Reason
from gatehouse.compiler.frontends.gateway_api.inputs import rejected_credential
from gatehouse.compiler.frontends.gateway_api.reference_grants import Reference, permitted
from gatehouse.compiler.ir.gateway import Certificate, SecretBytes, content_name
from gatehouse.dataplane.origin import Origin
from gatehouse.incremental.query import Ask, Key


def key_pair_of_secret(ask: Ask, name: tuple[str, str]) -> Certificate | str:
    """Return the key pair in the Secret ``(namespace, name)``, or the problem."""
    secret = ask.read(("Secret", *name))
    where = f"Secret {name[0]}/{name[1]}"
    if secret is None:
        return f"{where} not found"
    if not isinstance(secret, core.Secret):
        return f"{where} is invalid"
    try:
        chain = base64.b64decode(secret.data["tls.crt"], validate=True)
        key = base64.b64decode(secret.data["tls.key"], validate=True)
    except KeyError as error:
        return f"{where}: data[{error.args[0]}] not found"
    except ValueError:
        return f"{where}: data must be base64"
    result = key_pair(chain, key, origin=Origin("Secret", *name))
    return f"{where}: {result}" if isinstance(result, str) else result


def key_pair(
    chain: bytes,
    key: bytes,
    names: tuple[str, str] = ("tls.crt", "tls.key"),
    *,
    origin: Origin,
) -> Certificate | str:
    """Return a PEM key pair, or the problem. ``names`` are the names of its parts in messages."""
    spki = serialization.PublicFormat.SubjectPublicKeyInfo
    der = serialization.Encoding.DER
    try:
        parsed = x509.load_pem_x509_certificates(chain)
        public = parsed[0].public_key()
        certified = public.public_bytes(der, spki)
    except pem.MALFORMED:
        return f"{names[0]} must be a PEM certificate with a supported key type"
    if problem := rsa_keys.size_problem(public):
        return f"{names[0]}: {problem}"
    try:
        private = serialization.load_pem_private_key(
            key, password=None, unsafe_skip_rsa_key_validation=True
        )
        own = private.public_key().public_bytes(der, spki)
    except pem.MALFORMED:
        return f"{names[1]} must be an unencrypted PEM key of a supported type"
    if certified != own:
        return f"{names[1]} does not match the first certificate of {names[0]}"
    if isinstance(private, RSAPrivateKey) and not rsa_keys.is_consistent(private.private_numbers()):
        return f"{names[1]} must be a valid key"
    chain, key = pem.encode_certificates(parsed), pem.encode_private_key(private)
    names_of_leaf = dns_names(parsed[0])
    validity = validity_of(parsed[0])
    return Certificate(
        content_name("cert", chain + b"\0" + key),
        chain,
        SecretBytes(key),
        origin,
        names_of_leaf,
        _key_type(public),
        validity,
    )


def _key_type(key: CertificatePublicKeyTypes) -> Literal["rsa", "ecdsa", "other"]:
    if isinstance(key, RSAPublicKey):
        return "rsa"
    return "ecdsa" if isinstance(key, EllipticCurvePublicKey) else "other"


def listener_certificates(
    ask: Ask, key: Key, owner: Key, listener: gateway.ListenerSpec
) -> tuple[tuple[Certificate, ...], list[Finding]]:
    """Return the certificates of a listener of Gateway ``key``, and a finding for each reference
    that cannot be used. ``owner``: the Gateway or ListenerSet that has the listener."""
    by_name: dict[str, Certificate] = {}
    findings: list[Finding] = []
    references = listener.tls.certificate_refs if listener.tls else ()
    place = f"listener {listener.name}: tls.certificateRefs"
    if not references:
        findings.append(Finding(Reason.INVALID_CERTIFICATE_REF, f"{place}: must not be empty"))
    for index, reference in enumerate(references):
        where = f"{place}[{index}]"
        result: Certificate | Finding | None = resolve_certificate(ask, key, owner, reference)
        if isinstance(result, Certificate):
            by_name[result.name] = result
            result = rejection_of(ask, key, result, tried=True)
        if result is not None:
            findings.append(Finding(result.reason, f"{where}: {result.message}"))
    return tuple(by_name.values()), findings


def resolve_certificate(
    ask: Ask,
    key: Key,
    owner: Key,
    reference: gateway.ObjectReference,
    group: str = gateway.GATEWAY_API_GROUP,
) -> Certificate | Finding:
    """Return the certificate that ``owner``, a part of Gateway ``key``, refers to, or a finding."""
    if (reference.group, reference.kind) != ("", "Secret"):
        kind = f"{reference.group}/{reference.kind}".lstrip("/")
        return Finding(
            Reason.INVALID_CERTIFICATE_REF, f"kind {kind} is not supported: must be Secret"
        )
    target = (reference.namespace or owner[1], reference.name)
    across = Reference(group, owner[0], owner[1], "", "Secret", *target)
    if not ask(permitted, across):
        message = f"Secret {target[0]}/{target[1]} not allowed by any ReferenceGrant"
        return Finding(Reason.REF_NOT_PERMITTED, message)
    result = ask(key_pair_of_secret, target)
    if isinstance(result, str):
        return Finding(Reason.INVALID_CERTIFICATE_REF, result)
    return rejection_of(ask, key, result) or result


def rejection_of(
    ask: Ask, key: Key, certificate: Certificate, *, tried: bool = False
) -> Finding | None:
    """Return a finding if the proxy of Gateway ``key`` rejected a certificate, which is left out.

    ``tried``: also while the proxy tests it again.
    """
    why = rejected_credential(ask, key, certificate.name, tried=tried)
    message = f"{certificate.origin}: {why}"
    return Finding(Reason.INVALID_CERTIFICATE_REF, message) if why else None
