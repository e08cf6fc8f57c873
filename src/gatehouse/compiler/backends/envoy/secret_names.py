"""Names of the secrets that listeners refer to, with the certificates in them."""

from __future__ import annotations

from collections.abc import Iterator

from gatehouse.compiler.backends.envoy import listeners, names
from gatehouse.compiler.ir import gateway as ir


def certificate_secrets(ports: tuple[listeners.ListenerPort, ...]) -> Iterator[tuple[str, str]]:
    """Yield the name of every certificate secret, and of the certificate in it."""
    for port in ports:
        for chain in port.chains:
            name = names.filter_chain_name(port.number, chain.listener, chain.number)
            for index, certificate in enumerate(chain.certificates):
                yield names.server_certificate(name, index), certificate
        for stream in port.streams:
            for host in stream.hosts:
                name = names.filter_chain_name(port.number, f"stream/{host.hostname}")
                for index, certificate in enumerate(host.certificates):
                    yield names.server_certificate(name, index), certificate


def trust_secrets(gateway: ir.GatewayConfiguration) -> Iterator[tuple[str, str, bool]]:
    """Yield the name of every CA secret, of its CA certificates, and whether it is optional."""
    for listener in gateway.listeners:
        validation = listener.client_validation
        if validation is not None:
            yield names.client_trust_name(listener.port), validation.trust, not validation.required
