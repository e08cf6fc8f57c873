"""Server certificates of hostnames, selected by SNI and key type.

A server of NGINX has one certificate for each key type, whatever name the client sends. A hostname
whose names need different certificates is therefore written as several servers with the same
content.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from operator import attrgetter

import msgspec

from gatehouse.compiler.backends.nginx import names
from gatehouse.compiler.backends.nginx.directives import Directive, simple_directive
from gatehouse.compiler.backends.source import GatewaySource, gateway_configuration
from gatehouse.compiler.ir import gateway as ir
from gatehouse.incremental.query import Ask
from gatehouse.incremental.table import Table

_HOSTNAME = re.compile(r"(\*\.)?[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
"""Other names of a certificate, which its owner chooses freely, are ignored."""


class ServerNames(msgspec.Struct, frozen=True):
    """Names of a server, and the names of its certificates."""

    hostnames: tuple[str, ...]
    certificates: tuple[str, ...] = ()


def servers_of_host(
    ask: Ask,
    gateway: GatewaySource,
    hostname: str,
    certificates: Sequence[str],
    is_served: Callable[[str], bool],
) -> tuple[ServerNames, ...]:
    """Return the servers of a hostname with these certificates.

    ``is_served``: whether the port has a hostname.
    """
    if len(certificates) < 2:
        return (ServerNames((hostname,), tuple(certificates)),)
    known = [ask.entry(certificates_by_name, gateway, key=name) for name in certificates]
    offered = [certificate for certificate in known if certificate is not None]
    servers = {_selected(offered, hostname): [hostname]}
    for name in sorted({name for certificate in offered for name in certificate.dns_names}):
        if _HOSTNAME.fullmatch(name) and _owner(name, is_served) == hostname != name:
            servers.setdefault(_selected(offered, name), []).append(name)
    return tuple(ServerNames(tuple(own), selected) for selected, own in servers.items())


def certificates_by_name(ask: Ask, gateway: GatewaySource) -> Table[str, ir.Certificate]:
    """Return the certificates of a gateway by name."""
    return ask.by_key(gateway_configuration(ask, gateway).certificates, attrgetter("name"))


def _selected(offered: Iterable[ir.Certificate], hostname: str) -> tuple[str, ...]:
    """Return the names of the certificates that fit a hostname best, one for each key type.

    If none fits, the first of each key type is presented.
    """
    best: dict[str, tuple[int, str]] = {}
    for certificate in offered:
        fit = _fit(certificate.dns_names, hostname)
        if certificate.key_type not in best or fit > best[certificate.key_type][0]:
            best[certificate.key_type] = (fit, certificate.name)
    fitting = any(fit for fit, _ in best.values())
    return tuple(name for fit, name in best.values() if fit or not fitting)


def _fit(dns_names: Collection[str], hostname: str) -> int:
    """Return how well a certificate fits a hostname: 2 by the same name, 1 by a wildcard."""
    if hostname in dns_names:
        return 2
    return int(f"*.{hostname.partition('.')[2]}" in dns_names)


def _owner(name: str, is_served: Callable[[str], bool]) -> str:
    """Return the most specific hostname of a port that covers a name."""
    return next((own for own in _covering(name) if is_served(own)), "")


def _covering(name: str) -> Iterator[str]:
    """Yield a hostname, and the wildcards that cover it, most specific first."""
    yield name
    rest = name.removeprefix("*.")
    while "." in rest:
        rest = rest.partition(".")[2]
        yield f"*.{rest}"


def certificate_directives(certificates: Iterable[str]) -> list[Directive]:
    """Return the directives that load certificates."""
    return [
        simple_directive(directive, names.certificate_file(certificate, kind))
        for certificate in certificates
        for directive, kind in (("ssl_certificate", "crt"), ("ssl_certificate_key", "key"))
    ]
