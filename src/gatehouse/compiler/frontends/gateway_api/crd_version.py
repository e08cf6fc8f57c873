"""Compatibility of the cluster's Gateway API CRDs with the supported version.

GatewayClass ``SupportedVersion``: the same minor version is fully supported. Another minor version
of the same major version is supported as far as both agree. With another major version no Gateway
is served.
"""

from __future__ import annotations

import re
from typing import Literal

from gatehouse.compiler.frontends.gateway_api.findings import Finding, Reason
from gatehouse.compiler.frontends.gateway_api.inputs import (
    BUNDLED_VERSION,
    CRD_VERSIONS_KEY,
    CRDVersions,
)
from gatehouse.incremental.query import Ask

Compatibility = Literal["unknown", "same", "near", "foreign"]

SUPPORTED_VERSION = "v{}.{}".format(*BUNDLED_VERSION)

_VERSION = re.compile(r"v?(\d+)\.(\d+)(?:\.(\d+))?(?:[.+-].*)?")

CrdVersion = tuple[int, ...]
"""Major and minor version, and the patch if it is known."""


def compatibility(version: str) -> Compatibility:
    """Compare a ``bundle-version`` with :data:`BUNDLED_VERSION`. An unparsable one is ``near``."""
    parsed = _parse(version)
    if parsed is None:
        return "near"
    if parsed[0] != BUNDLED_VERSION[0]:
        return "foreign"
    return "same" if parsed[:2] == BUNDLED_VERSION else "near"


def _parse(version: str) -> CrdVersion | None:
    """Return a version; None if the text is none."""
    parsed = _VERSION.fullmatch(version)
    return tuple(int(number) for number in parsed.groups(default="0")) if parsed else None


def oldest_version(ask: Ask, _: str = "") -> CrdVersion:
    """Return the oldest version of the CRDs; the bundled one if none is known."""
    resource = ask.read(CRD_VERSIONS_KEY)
    versions = resource.versions if isinstance(resource, CRDVersions) else ()
    parsed = (_parse(version) for _, version in versions)
    return min((version for version in parsed if version), default=BUNDLED_VERSION)


def has_later_fields(ask: Ask) -> bool:
    """Return whether Gateways have the fields that are experimental since Gateway API 1.7:
    ``routability`` of addresses, and ``filters`` of listeners."""
    resource = ask.read(CRD_VERSIONS_KEY)
    experimental = not isinstance(resource, CRDVersions) or resource.experimental
    return experimental and ask(oldest_version, "") >= (1, 7)


def least_compatible(ask: Ask) -> tuple[Compatibility, str]:
    """Return the worst compatibility of the CRDs, and the version and name of one such CRD."""
    resource = ask.read(CRD_VERSIONS_KEY)
    versions = resource.versions if isinstance(resource, CRDVersions) else ()
    by_compatibility = {compatibility(version): f"{version} ({name})" for name, version in versions}
    for level in ("foreign", "near", "same"):
        if level in by_compatibility:
            return level, by_compatibility[level]
    return "unknown", ""


def is_incompatible(ask: Ask) -> bool:
    """Return whether the cluster's Gateway API has another major version."""
    return ask(least_compatible)[0] == "foreign"


def crd_version_findings(ask: Ask) -> tuple[Finding, ...]:
    """Return the findings for a GatewayClass; none if the versions are not known."""
    match ask(least_compatible):
        case "same", which:
            return (Finding(Reason.SUPPORTED_VERSION, f"Gateway API {which} is supported"),)
        case "near", which:
            message = f"Gateway API {which} is not {SUPPORTED_VERSION}: served as far as both agree"
            return (Finding(Reason.OTHER_VERSION, message),)
        case "foreign", which:
            message = f"Gateway API {which} is not supported: must be {SUPPORTED_VERSION}"
            return (
                Finding(Reason.UNSUPPORTED_VERSION, message),
                Finding(Reason.OTHER_VERSION, message),
            )
    return ()
