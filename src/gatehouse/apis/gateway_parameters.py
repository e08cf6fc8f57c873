"""GatewayParameters of ``gatehouse.dev/v1alpha1``."""

from __future__ import annotations

from gatehouse.apis.data_plane_parameters import ParametersSpec
from gatehouse.apis.meta import KubernetesObject

GATEHOUSE_GROUP = "gatehouse.dev"


class GatewayParameters(KubernetesObject, frozen=True):
    """GatewayParameters: the proxy-neutral parameters of a GatewayClass or Gateway."""

    spec: ParametersSpec = ParametersSpec()
