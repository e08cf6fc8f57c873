"""Rejected credentials are read from the conditions of Gateways, cluster-scoped ones, too."""

from __future__ import annotations

import pytest

from gatehouse.compiler.frontends import gateway_api
from gatehouse.compiler.ir.gateway import Credential, TrustBundle
from gatehouse.controller.quarantines import LEFT_OUT
from gatehouse.dataplane.origin import Origin
from gatehouse.incremental.query import Key
from gatehouse.inspection.live_rejections import LiveRejections

GATEWAY = ("Gateway", "n", "gw")
ORIGINS = [
    Origin("Secret", "n", "pair"),
    Origin("ConfigMap", "n", "ca"),
    Origin("ClusterTrustBundle", "", "example.com:ca:v1"),
    Origin("ClusterTrustBundle", "", "plain"),
]


@pytest.mark.parametrize("origin", ORIGINS, ids=str)
@pytest.mark.parametrize("others", ["", "Gateway n/gw: port 80, ", "HTTPRoute n/r and "])
def test_holder_of_a_rejected_credential_is_read(origin: Origin, others: str) -> None:
    message = f"for 5 s: {LEFT_OUT}: {others}{origin}"
    condition = {"type": "Programmed", "status": "True", "message": message}
    metadata = {"name": "gw", "namespace": "n", "generation": 1}
    gateway = {"kind": "Gateway", "metadata": metadata, "status": {"conditions": [condition]}}
    credentials: dict[Key, tuple[Credential, ...]] = {
        GATEWAY: tuple(TrustBundle(str(one), b"", (one,)) for one in ORIGINS),
    }
    inputs = LiveRejections([gateway]).credential_inputs(credentials)
    assert list(inputs) == [gateway_api.rejected_credential_key(GATEWAY, str(origin))]
