"""Certificates of listeners: from references to Secrets to key pairs that fit."""

from __future__ import annotations

import base64
import hashlib

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization

from gatehouse.apis import core, gateway
from gatehouse.compiler.frontends.gateway_api.findings import Finding, Reason
from gatehouse.compiler.frontends.gateway_api.reference_grants import Reference, permitted
from gatehouse.compiler.ir.gateway import Certificate, SecretBytes
from gatehouse.incremental.query import Ask, Key


def certificate(ask: Ask, name: tuple[str, str]) -> Certificate | str:
    """Give the key pair in the Secret ``(namespace, name)``, or what is wrong with it."""
    secret = ask.read(("Secret", *name))
    where = f"Secret {name[0]}/{name[1]}"
    if secret is None:
        return f"{where} does not exist"
    if not isinstance(secret, core.Secret):
        return f"{where} cannot be read"
    try:
        chain = base64.b64decode(secret.data["tls.crt"], validate=True)
        key = base64.b64decode(secret.data["tls.key"], validate=True)
    except KeyError as error:
        return f"{where} has no data[{error.args[0]}]"
    except ValueError:
        return f"{where}: data is not base64"
    found = key_pair(chain, key)
    return f"{where}: {found}" if isinstance(found, str) else found


def key_pair(
    chain: bytes, key: bytes, names: tuple[str, str] = ("tls.crt", "tls.key")
) -> Certificate | str:
    """Give a key pair, both parts PEM; or what is wrong with it, by the ``names`` of its parts."""
    trouble = _trouble(chain, key, names)
    if trouble:
        return trouble
    digest = hashlib.sha256(chain + b"\0" + key).hexdigest()[:24]
    return Certificate(name=f"cert-{digest}", chain=chain, key=SecretBytes(key))


def _trouble(chain: bytes, key: bytes, names: tuple[str, str]) -> str:
    spki = serialization.PublicFormat.SubjectPublicKeyInfo
    der = serialization.Encoding.DER
    try:
        leaf = x509.load_pem_x509_certificates(chain)[0]
        certified = leaf.public_key().public_bytes(der, spki)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        return f"{names[0]} holds no PEM certificate of a kind that is known"
    try:
        private = serialization.load_pem_private_key(key, password=None)
        own = private.public_key().public_bytes(der, spki)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        return f"{names[1]} holds no unencrypted PEM key of a kind that is known"
    if certified != own:
        return f"{names[1]} does not belong to the first certificate of {names[0]}"
    return ""


def listener_certificates(
    ask: Ask, owner: Key, listener: gateway.Listener
) -> tuple[tuple[Certificate, ...], list[Finding]]:
    """Give the certificates of a listener, and a finding for each that cannot be had."""
    found: dict[str, Certificate] = {}
    findings: list[Finding] = []
    references = listener.tls.certificate_refs if listener.tls else ()
    place = f"listener {listener.name}: tls.certificateRefs"
    if not references:
        findings.append(Finding(Reason.INVALID_CERTIFICATE_REF, f"{place} is empty"))
    for index, reference in enumerate(references):
        where = f"{place}[{index}]"
        result = resolve(ask, owner, reference)
        if isinstance(result, Certificate):
            found[result.name] = result
        else:
            findings.append(Finding(result.reason, f"{where}: {result.message}"))
    return tuple(found.values()), findings


def resolve(ask: Ask, owner: Key, reference: gateway.ObjectReference) -> Certificate | Finding:
    """Give the certificate that a Gateway or ListenerSet refers to, or why there is none."""
    if (reference.group, reference.kind) != ("", "Secret"):
        kind = f"{reference.group}/{reference.kind}".lstrip("/")
        return Finding(Reason.INVALID_CERTIFICATE_REF, f"kind {kind} is no Secret")
    target = (reference.namespace or owner[1], reference.name)
    across = Reference(gateway.GROUP, owner[0], owner[1], "", "Secret", *target)
    if not ask(permitted, across):
        message = f"no ReferenceGrant in namespace {target[0]} allows Secret {target[1]}"
        return Finding(Reason.REF_NOT_PERMITTED, message)
    result = ask(certificate, target)
    if isinstance(result, str):
        return Finding(Reason.INVALID_CERTIFICATE_REF, result)
    return result
