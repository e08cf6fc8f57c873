"""Where listeners ask for certificates and authorities, by the names of their secrets."""

from __future__ import annotations

from collections.abc import Iterator

from gatehouse.compiler.backends.envoy import listeners, names
from gatehouse.compiler.ir import gateway as ir


def certificates(ports: tuple[listeners.Port, ...]) -> Iterator[tuple[str, str]]:
    """Give the name of every secret that is a certificate, and of what is in it."""
    for port in ports:
        for chain in port.chains:
            name = names.chain(port.number, chain.listener, chain.number)
            for place, wanted in enumerate(chain.certificates):
                yield names.server_certificate(name, place), wanted
        for stream in port.streams:
            for host in stream.hosts:
                name = names.chain(port.number, f"stream/{host.hostname}")
                for place, wanted in enumerate(host.certificates):
                    yield names.server_certificate(name, place), wanted


def trust(gateway: ir.Gateway) -> Iterator[tuple[str, str, bool]]:
    """Give the name of every secret that is a bundle, of what is in it, and if it is optional."""
    for listener in gateway.listeners:
        wanted = listener.client_validation
        if wanted is not None:
            yield names.client_trust(listener.port), wanted.trust, not wanted.required
