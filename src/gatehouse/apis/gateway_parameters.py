"""GatewayParameters of ``gatehouse.dev/v1alpha1``."""

from __future__ import annotations

from gatehouse.apis.data_plane_parameters import ParametersSpec
from gatehouse.apis.meta import Resource

GROUP = "gatehouse.dev"


class GatewayParameters(Resource, frozen=True):
    """GatewayParameters: the proxy-neutral parameters of a GatewayClass or Gateway."""

    spec: ParametersSpec = ParametersSpec()
