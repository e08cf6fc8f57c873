"""Additions of a front end to the IR of a Gateway."""

from __future__ import annotations

import msgspec

from gatehouse.compiler.ir import gateway as ir
from gatehouse.compiler.ir.http import Cluster
from gatehouse.compiler.ir.kube_apiserver import ApiListener


class Contribution(msgspec.Struct, frozen=True):
    """Entries for the fields of a :class:`~gatehouse.compiler.ir.gateway.GatewayConfiguration`.

    Their order has no meaning.
    """

    api_listeners: tuple[ApiListener, ...] = ()
    proxy_protocol_listeners: tuple[ir.ProxyProtocolListener, ...] = ()
    http_connect_listeners: tuple[ir.HttpConnectListener, ...] = ()
    clusters: tuple[Cluster, ...] = ()
    certificates: tuple[ir.Certificate, ...] = ()
    trust_bundles: tuple[ir.TrustBundle, ...] = ()
    secrets: tuple[ir.SecretFile, ...] = ()


EMPTY_CONTRIBUTION = Contribution()
