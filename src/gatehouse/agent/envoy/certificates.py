"""Certificates among the resources of an Envoy."""

from __future__ import annotations

import functools
from collections.abc import Callable

from envoy.extensions.transport_sockets.tls.v3 import secret_pb2

from gatehouse.dataplane.xds.resources import SECRET_TYPE_URL, ResourceSet


def certificate_chains(resources: ResourceSet) -> dict[str, Callable[[], bytes]]:
    """Return readers of the certificate chains, by the version of their secret."""
    return {
        secret.version: functools.partial(_chain, secret.body)
        for secret in resources.by_type.get(SECRET_TYPE_URL, {}).values()
    }


def _chain(body: bytes) -> bytes:
    """Return the chain of a secret as PEM; empty if it has none, such as CA certificates."""
    return secret_pb2.Secret.FromString(body).tls_certificate.certificate_chain.inline_bytes
