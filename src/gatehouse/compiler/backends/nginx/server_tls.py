"""TLS versions and cipher suites of servers.

Before NGINX 1.29.2, the default server of a port decides on the TLS version, before the SNI selects
a server. It then offers all versions of the port, and servers of TLS 1.3 alone close connections
of TLS 1.2.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from gatehouse.compiler.backends.nginx import quoting
from gatehouse.compiler.backends.nginx.directives import Directive, simple_directive
from gatehouse.compiler.ir.server_tls import (
    DEFAULT_TLS,
    TLS_VERSIONS,
    ServerTls,
    TlsVersion,
    all_versions,
)
from gatehouse.compiler.ir.unsupported import UnsupportedSetting
from gatehouse.dataplane.origin import NO_ORIGIN

NEWEST = TLS_VERSIONS[-1]

DEFAULT_SETTINGS = ((), (DEFAULT_TLS,))
"""Settings of ports whose servers need no directive."""


def version_directives(
    versions: Collection[TlsVersion], inherited: Collection[TlsVersion] = TLS_VERSIONS
) -> list[Directive]:
    """Return the directive for TLS versions; none for those that ``http`` sets."""
    if versions == inherited:
        return []
    return [simple_directive("ssl_protocols", *versions)]


def cipher_directives(tls: ServerTls) -> list[Directive]:
    """Return the directives for cipher suites."""
    directives = []
    if tls.ciphers:
        directives.append(simple_directive("ssl_ciphers", quoting.quote_literal(tls.ciphers)))
    if tls.prefer_server_ciphers:
        preference = "on" if tls.prefer_server_ciphers == "on" else "off"
        directives.append(simple_directive("ssl_prefer_server_ciphers", preference))
    return directives


def offered_versions(
    own: ServerTls, port: Collection[ServerTls], *, versions_by_sni: bool, default: bool
) -> tuple[TlsVersion, ...]:
    """Return the TLS versions of a server. ``port``: the settings of all listeners of its port."""
    return all_versions(port) if default and not versions_by_sni else own.versions


def needs_guard(own: ServerTls, port: Collection[ServerTls], *, versions_by_sni: bool) -> bool:
    """Return whether a server of TLS 1.3 alone gets connections of TLS 1.2."""
    if versions_by_sni or own.versions != (NEWEST,):
        return False
    return all_versions(port) != own.versions


def unsupported_versions(number: int, port: Collection[ServerTls]) -> Iterator[UnsupportedSetting]:
    """Yield a finding if a port serves a TLS version that one of its listeners excludes.

    For NGINX before 1.29.2.
    """
    if NEWEST in all_versions(port) and not all(NEWEST in tls.versions for tls in port):
        yield UnsupportedSetting(
            NO_ORIGIN,
            f"port {number}: listeners without {NEWEST} accept it too, as other listeners of the "
            "port have it: requires NGINX 1.29.2 or newer",
        )
