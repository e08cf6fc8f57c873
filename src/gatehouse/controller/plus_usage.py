"""What the installation says about NGINX Plus' licence and its reports of use. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection

import msgspec

from gatehouse.compiler.ir.settings import UsageReports
from gatehouse.controller.provisioner.copied_secrets import Source
from gatehouse.controller.provisioner.pod import DATA_DIR, PLUS_DIR

_NAME = r"[A-Za-z0-9]([A-Za-z0-9._-]{0,251}[A-Za-z0-9])?|\[[0-9A-Fa-f:.]{2,45}\]"
_SERVER = re.compile(rf"({_NAME})(:[0-9]{{1,5}})?")


class UsageOptions(
    msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True, kw_only=True
):
    """Where and how reports of use go; each as the directive of NGINX Plus has it by default."""

    endpoint: str = ""
    """``host[:port]``: an NGINX Instance Manager, where F5's own endpoint cannot be reached."""
    resolver: str = ""
    """Name servers, separated by spaces, each ``host[:port]``."""
    proxy: str = ""
    """``host:port`` of a proxy that reports go through."""
    skip_verify: bool = False
    enforce_initial_report: bool = True
    """Whether no traffic is served before a first report was taken."""


def parse(text: str) -> UsageOptions:
    """Read the options as JSON; raises ValueError."""
    found = msgspec.json.decode(text or "{}", type=UsageOptions)
    for name, value in (
        ("endpoint", found.endpoint),
        *(("resolver", each) for each in found.resolver.split()),
        ("proxy", found.proxy),
    ):
        if value and not _SERVER.fullmatch(value):
            raise ValueError(f"{name}: {value!r} is not host or host:port")
    return found


def reports(options: UsageOptions, copies: Collection[Source]) -> UsageReports | None:
    """Give what data planes with NGINX Plus are told; None without a licence to tell of."""
    uses = {each.use for each in copies}
    if "license" not in uses:
        return None
    trusted, shown = (f"{PLUS_DIR}/{use}" for use in ("usage-ca", "usage-client"))
    return UsageReports(
        license=f"{PLUS_DIR}/license/license.jwt",
        state=f"{DATA_DIR}/state",
        endpoint=options.endpoint,
        resolver=tuple(options.resolver.split()),
        proxy=options.proxy,
        verified=not options.skip_verify,
        trust=f"{trusted}/ca.crt" if "usage-ca" in uses else "",
        certificate=f"{shown}/tls.crt" if "usage-client" in uses else "",
        key=f"{shown}/tls.key" if "usage-client" in uses else "",
        enforce_initial_report=options.enforce_initial_report,
    )
