"""What a front end adds to a Gateway whose listeners serve objects of its own."""

from __future__ import annotations

import msgspec

from gatehouse.compiler.ir import gateway as ir
from gatehouse.compiler.ir.http import Cluster
from gatehouse.compiler.ir.kube_apiserver import ApiListener


class Contribution(msgspec.Struct, frozen=True):
    """Parts of :class:`gatehouse.compiler.ir.gateway.Gateway`, in any order."""

    apis: tuple[ApiListener, ...] = ()
    tunnels: tuple[ir.ProxyProtocolListener, ...] = ()
    clusters: tuple[Cluster, ...] = ()
    certificates: tuple[ir.Certificate, ...] = ()
    trust: tuple[ir.TrustBundle, ...] = ()
    secrets: tuple[ir.SecretFile, ...] = ()


EMPTY = Contribution()
