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

_VERSION = re.compile(r"v?(\d+)\.(\d+)(?:[.+-].*)?")


def compatibility(version: str) -> Compatibility:
    """Compare a ``bundle-version`` with :data:`BUNDLED_VERSION`. An unparsable one is ``near``."""
    parsed = _parse(version)
    if parsed is None:
        return "near"
    if parsed[0] != BUNDLED_VERSION[0]:
        return "foreign"
    return "same" if parsed == BUNDLED_VERSION else "near"


def _parse(version: str) -> tuple[int, int] | None:
    """Return the major and minor version; None if the text is no version."""
    parsed = _VERSION.fullmatch(version)
    return (int(parsed[1]), int(parsed[2])) if parsed else None


def oldest_version(ask: Ask, _: str = "") -> tuple[int, int]:
    """Return the oldest major and minor version of the CRDs; the bundled one if none is known."""
    resource = ask.read(CRD_VERSIONS_KEY)
    versions = resource.versions if isinstance(resource, CRDVersions) else ()
    parsed = (_parse(version) for _, version in versions)
    return min((version for version in parsed if version), default=BUNDLED_VERSION)


def has_routability(ask: Ask) -> bool:
    """Return whether addresses of Gateways have the experimental field ``routability``."""
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
