"""Which Gateway API the cluster has, and what follows from it for what is ours.

GatewayClass ``SupportedVersion``: with the same minor version everything is as the specification
has it; with another one of the same major we do what we can; another major is another API.
"""

from __future__ import annotations

import re
from typing import Literal

from gatehouse.compiler.frontends.gateway_api.findings import Finding, Reason
from gatehouse.compiler.frontends.gateway_api.inputs import (
    BUNDLE_VERSION,
    CRD_VERSIONS_KEY,
    CRDVersions,
)
from gatehouse.incremental.query import Ask

Standing = Literal["unknown", "same", "near", "foreign"]

SUPPORTED_VERSION = "v{}.{}".format(*BUNDLE_VERSION)

_VERSION = re.compile(r"v?(\d+)\.(\d+)(?:[.+-].*)?")


def compatibility(version: str) -> Standing:
    """Compare a ``bundle-version`` with ours; what is no version is near, not foreign."""
    read = _VERSION.fullmatch(version)
    if read is None:
        return "near"
    major, minor = int(read[1]), int(read[2])
    if major != BUNDLE_VERSION[0]:
        return "foreign"
    return "same" if minor == BUNDLE_VERSION[1] else "near"


def least_compatible(ask: Ask, _: str = "") -> tuple[Standing, str]:
    """Give how far the definitions are from ours, and which of them is the farthest."""
    found = ask.read(CRD_VERSIONS_KEY)
    versions = found.versions if isinstance(found, CRDVersions) else ()
    by_standing = {compatibility(version): f"{version} ({name})" for name, version in versions}
    for each in ("foreign", "near", "same"):
        if each in by_standing:
            return each, by_standing[each]
    return "unknown", ""


def is_incompatible(ask: Ask, _: str = "") -> bool:
    """Whether the cluster's Gateway API is another one than ours."""
    return ask(least_compatible, "")[0] == "foreign"


def findings(ask: Ask) -> tuple[Finding, ...]:
    """Say it of a GatewayClass; nothing where the versions are not known."""
    match ask(least_compatible, ""):
        case "same", which:
            return (Finding(Reason.SUPPORTED_VERSION, f"Gateway API {which} is supported"),)
        case "near", which:
            message = f"Gateway API {which} is not {SUPPORTED_VERSION}: served as far as both agree"
            return (Finding(Reason.OTHER_VERSION, message),)
        case "foreign", which:
            message = f"Gateway API {which} is not {SUPPORTED_VERSION}"
            return (
                Finding(Reason.UNSUPPORTED_VERSION, message),
                Finding(Reason.OTHER_VERSION, message),
            )
    return ()
