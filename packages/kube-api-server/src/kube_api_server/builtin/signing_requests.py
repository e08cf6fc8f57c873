"""Validation of CertificateSigningRequests: requests, usages, conditions and certificates."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator

from cryptography import x509

from kube_api_server.builtin.trust_bundles import check_signer_name
from kube_api_server.causes import duplicate_cause, invalid_cause, required_cause, unsupported_cause
from kube_api_server.errors import Cause
from kube_api_server.formatting import quote_go
from kube_base.types.objects import Object

APPROVED, DENIED, FAILED = "Approved", "Denied", "Failed"
DECISIONS = (APPROVED, DENIED)

MIN_SECONDS = 600
"""Minimum life of a requested certificate."""

_LEGACY_SIGNER = "kubernetes.io/legacy-unknown"
_STATUSES = ("False", "True", "Unknown")
_USAGES = (
    "any", "cert sign", "client auth", "code signing", "content commitment", "crl sign",
    "data encipherment", "decipher only", "digital signature", "email protection", "encipher only",
    "ipsec end system", "ipsec tunnel", "ipsec user", "key agreement", "key encipherment",
    "microsoft sgc", "netscape sgc", "ocsp signing", "s/mime", "server auth", "signing",
    "timestamping",
)  # fmt: skip
_BLOCK = re.compile(rb"-----BEGIN ([^-]*)-----")


def check_signing_request(obj: Object, old: Object | None) -> Iterator[Cause]:
    """Yield the violations of a request. Those that are stored already are none."""
    status, before = obj.get("status") or {}, (old or {}).get("status") or {}
    if old is None:
        yield from _check_spec(obj.get("spec") or {})
    if status.get("conditions") != before.get("conditions"):
        yield from _check_conditions(status.get("conditions") or [])
    if status.get("certificate") != before.get("certificate"):
        yield from _check_certificate(status.get("certificate") or "")


def _check_spec(spec: Object) -> Iterator[Cause]:
    request, usages = spec.get("request") or "", spec.get("usages") or []
    try:
        valid = signing_request(request).is_signature_valid
    except ValueError as error:
        yield invalid_cause("spec.request", request, str(error))
    else:
        if not valid:
            yield invalid_cause("spec.request", request, "the signature is invalid")
    if not usages:
        yield required_cause("spec.usages")
    for index, usage in enumerate(usages):
        if usage not in _USAGES:
            yield unsupported_cause(f"spec.usages[{index}]", usage, _USAGES)
    for index, usage in enumerate(usages):
        if usage in usages[:index]:
            yield duplicate_cause(f"spec.usages[{index}]", usage)
    signer, seconds = spec.get("signerName") or "", spec.get("expirationSeconds")
    if signer == _LEGACY_SIGNER:
        why = "the legacy signerName is not allowed via this API version"
        yield invalid_cause("spec.signerName", signer, why)
    else:
        yield from check_signer_name(signer)
    if seconds is not None and seconds < MIN_SECONDS:
        why = f"may not specify a duration less than {MIN_SECONDS} seconds (10 minutes)"
        yield invalid_cause("spec.expirationSeconds", seconds, why)


def signing_request(encoded: str) -> x509.CertificateSigningRequest:
    """Return the request in `spec.request`. Raises ValueError."""
    text = base64.b64decode(encoded)
    block = _BLOCK.search(text)
    if block is None or block[1] != b"CERTIFICATE REQUEST":
        raise ValueError("PEM block type must be CERTIFICATE REQUEST")
    return x509.load_pem_x509_csr(text)


def _check_conditions(conditions: list[Object]) -> Iterator[Cause]:
    field = "status.conditions"
    types = [condition.get("type") or "" for condition in conditions]
    for index, (kind, condition) in enumerate(zip(types, conditions, strict=True)):
        place, value = f"{field}[{index}]", condition.get("status") or ""
        allowed = ("True",) if kind in (*DECISIONS, FAILED) else _STATUSES
        if not kind:
            yield required_cause(f"{place}.type")
        if not value:
            yield required_cause(f"{place}.status")
        elif value not in allowed:
            yield unsupported_cause(f"{place}.status", value, allowed)
        if kind in DECISIONS and set(DECISIONS) - {kind} <= set(types[:index]):
            why = "Approved and Denied conditions are mutually exclusive"
            yield invalid_cause(field, kind, why)


def _check_certificate(encoded: str) -> Iterator[Cause]:
    if not encoded:
        return
    text, why = base64.b64decode(encoded), ""
    blocks = [block[1].decode("ascii", "replace") for block in _BLOCK.finditer(text)]
    other = next((block for block in blocks if block != "CERTIFICATE"), None)
    if not blocks:
        why = "must contain at least one CERTIFICATE PEM block"
    elif other is not None:
        why = f"only CERTIFICATE PEM blocks are allowed, found {quote_go(other)}"
    else:
        try:
            x509.load_pem_x509_certificates(text)
        except ValueError as error:
            why = str(error)
    if why:
        yield invalid_cause("status.certificate", "<certificate data>", why)
