"""Options for the licence and usage reports of NGINX Plus. No I/O."""

from __future__ import annotations

import re
from collections.abc import Collection

import msgspec

from gatehouse.compiler.ir.proxy_settings import NginxUsageReports
from gatehouse.controller.provisioner.copied_secrets import SecretSource
from gatehouse.controller.provisioner.pod import DATA_DIR, PLUS_DIR

_NAME = r"[A-Za-z0-9]([A-Za-z0-9._-]{0,251}[A-Za-z0-9])?|\[[0-9A-Fa-f:.]{2,45}\]"
_SERVER = re.compile(rf"({_NAME})(:[0-9]{{1,5}})?")


class UsageOptions(
    msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True, kw_only=True
):
    """Options of usage reports. Defaults are those of the NGINX Plus directives."""

    endpoint: str = ""
    """``host[:port]`` of an NGINX Instance Manager; empty for F5's own endpoint."""
    resolver: str = ""
    """Name servers, separated by spaces, each ``host[:port]``. Empty for the default."""
    proxy: str = ""
    """``host:port`` of an HTTP proxy for reports; empty for none."""
    skip_verify: bool = False
    """True if the endpoint's certificate is not verified."""
    enforce_initial_report: bool = True
    """True if NGINX serves traffic only after a first successful report."""


def parse_plus_usage(text: str) -> UsageOptions:
    """Parse the options from JSON. Raises ValueError."""
    options = msgspec.json.decode(text or "{}", type=UsageOptions)
    for name, value in (
        ("endpoint", options.endpoint),
        *(("resolver", server) for server in options.resolver.split()),
        ("proxy", options.proxy),
    ):
        if value and not _SERVER.fullmatch(value):
            raise ValueError(f"{name}: invalid value {value!r}: must be host or host:port")
    return options


def reports(options: UsageOptions, copies: Collection[SecretSource]) -> NginxUsageReports | None:
    """Return the usage report settings for the IR; None without a copied licence."""
    uses = {source.use for source in copies}
    if "license" not in uses:
        return None
    ca_dir, client_dir = (f"{PLUS_DIR}/{use}" for use in ("usage-ca", "usage-client"))
    return NginxUsageReports(
        license=f"{PLUS_DIR}/license/license.jwt",
        state=f"{DATA_DIR}/state",
        endpoint=options.endpoint,
        resolver=tuple(options.resolver.split()),
        proxy=options.proxy,
        verified=not options.skip_verify,
        trust=f"{ca_dir}/ca.crt" if "usage-ca" in uses else "",
        certificate=f"{client_dir}/tls.crt" if "usage-client" in uses else "",
        key=f"{client_dir}/tls.key" if "usage-client" in uses else "",
        enforce_initial_report=options.enforce_initial_report,
    )
