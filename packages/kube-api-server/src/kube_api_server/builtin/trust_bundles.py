"""Validation of ClusterTrustBundles: names, signers and certificates."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator

from cryptography import x509

from kube_api_server.causes import invalid_cause
from kube_api_server.errors import Cause
from kube_api_server.objects.metadata import (
    MAX_SUBDOMAIN_LENGTH,
    NAME_LABEL,
    NAME_LABEL_RULE,
    SUBDOMAIN,
    SUBDOMAIN_RULE,
)
from kube_base.types.objects import Object

MAX_TRUST_BUNDLE_BYTES = 1024 * 1024
_TRUST_BUNDLE = "spec.trustBundle"
_OMITTED = "<value omitted>"
_BEGIN = re.compile(r"-----BEGIN ([^-]*)-----[ \t\r]*\Z")
_SIGNER = re.compile(r"[^/]+/[^/]+")


def check_trust_bundle(obj: Object, old: Object | None) -> Iterator[Cause]:
    """Yield the violations of a ClusterTrustBundle."""
    spec = obj["spec"]
    signer, text = spec.get("signerName") or "", spec.get("trustBundle") or ""
    yield from _check_name(obj["metadata"].get("name") or "", signer)
    if signer:
        yield from check_signer_name(signer)
    former = (old or {}).get("spec") or {}
    if old is None or former.get("trustBundle") != text:
        yield from _check_certificates(text)
    if old is not None and signer != (former.get("signerName") or ""):
        yield invalid_cause("spec.signerName", signer, "field is immutable")


def _check_name(name: str, signer: str) -> Iterator[Cause]:
    prefix = signer.replace("/", ":") + ":" if signer else ""
    rest = name.removeprefix(prefix)
    why = ""
    if not signer and ":" in name:
        why = 'ClusterTrustBundle without signer name must not have ":" in its name'
    elif not name.startswith(prefix):
        why = f"ClusterTrustBundle for signerName {signer} must be named with prefix {prefix}"
    elif len(rest) > MAX_SUBDOMAIN_LENGTH:
        why = f"must be no more than {MAX_SUBDOMAIN_LENGTH} bytes"
    elif not SUBDOMAIN.fullmatch(rest):
        why = SUBDOMAIN_RULE
    if why:
        yield invalid_cause("metadata.name", name, why)


def check_signer_name(signer: str) -> Iterator[Cause]:
    """Yield the violations of `spec.signerName`."""
    if not _SIGNER.fullmatch(signer):
        why = "must be a fully qualified domain and path of the form 'example.com/signer-name'"
        yield invalid_cause("spec.signerName", signer, why)
        return
    domain, path = signer.split("/")
    if "." not in domain:
        why = "should be a domain with at least two segments separated by dots"
        yield invalid_cause("spec.signerName", domain, why)
    for segment, pattern, rule in (
        (domain, NAME_LABEL, NAME_LABEL_RULE),
        (path, SUBDOMAIN, SUBDOMAIN_RULE),
    ):
        for label in segment.split("."):
            if not pattern.fullmatch(label):
                why = f'validating label "{label}": {rule}'
                yield invalid_cause("spec.signerName", segment, why)
                break


def _check_certificates(text: str) -> Iterator[Cause]:
    """Yield the violations of a PEM text; of duplicates only if each block is valid."""
    if len(text.encode()) > MAX_TRUST_BUNDLE_BYTES:
        message = f"Too long: may not be more than {MAX_TRUST_BUNDLE_BYTES} bytes"
        yield Cause("FieldValueTooLong", message, _TRUST_BUNDLE)
        return
    places: defaultdict[str, list[int]] = defaultdict(list)
    reasons: list[str] = []
    for index, (kind, body) in enumerate(_blocks(text)):
        if problem := _problem(kind, body):
            reasons.append(f"entry {index} {problem}")
        else:
            places["".join(body.split())].append(index)
    if not reasons and not places:
        reasons.append("at least one trust anchor must be provided")
    elif not reasons:
        for indices in places.values():
            if len(indices) > 1:
                listed = " ".join(map(str, indices))
                reasons.append(f"duplicate trust anchor (indices [{listed}])")
    for reason in reasons:
        yield invalid_cause(_TRUST_BUNDLE, _OMITTED, reason)


def _blocks(text: str) -> Iterator[tuple[str, str]]:
    """Yield type and body of each PEM block. Text outside of blocks is ignored."""
    kind: str | None = None
    body: list[str] = []
    for line in text.split("\n"):
        if begin := _BEGIN.match(line):
            kind, body = begin[1], []
        elif kind is not None and line.rstrip() == f"-----END {kind}-----":
            yield kind, "\n".join(body)
            kind = None
        else:
            body.append(line)


def _problem(kind: str, body: str) -> str:
    """Return the problem of a block; empty if it is the certificate of an authority."""
    if kind != "CERTIFICATE":
        return f"has bad block type: {kind}"
    if ":" in body:
        return "has PEM block headers"
    try:
        certificate = x509.load_pem_x509_certificate(
            f"-----BEGIN CERTIFICATE-----\n{body}\n-----END CERTIFICATE-----\n".encode()
        )
        constraints = certificate.extensions.get_extension_for_class(x509.BasicConstraints)
    except x509.ExtensionNotFound:
        return "does not have the CA bit set"
    except (ValueError, x509.DuplicateExtension, x509.UnsupportedGeneralNameType):
        return "does not parse as X.509"
    return "" if constraints.value.ca else "does not have the CA bit set"
