"""What a front end adds to a Gateway whose listeners serve objects of its own."""

from __future__ import annotations

import msgspec

from gatehouse.ir import gateway as ir
from gatehouse.ir.http import Cluster
from gatehouse.ir.kubernetes import ApiListener


class Contribution(msgspec.Struct, frozen=True):
    """Parts of :class:`gatehouse.ir.gateway.Gateway`, in any order."""

    apis: tuple[ApiListener, ...] = ()
    tunnels: tuple[ir.TunnelListener, ...] = ()
    clusters: tuple[Cluster, ...] = ()
    certificates: tuple[ir.Certificate, ...] = ()
    trust: tuple[ir.TrustBundle, ...] = ()
    secrets: tuple[ir.SecretFile, ...] = ()


NOTHING = Contribution()
