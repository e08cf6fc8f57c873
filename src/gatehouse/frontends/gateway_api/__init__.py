"""Gateway API v1: GatewayClass, Gateway and HTTPRoute, and what they refer to.

Reading order: :mod:`inputs` (what is read), :mod:`listeners`, :mod:`attachment`, :mod:`rules`
(:mod:`filters`, :mod:`backends`, :mod:`precedence`), :mod:`assemble` (the build plan),
:mod:`findings` and :mod:`status`, :mod:`merging`. Each module answers one question; kinds of routes
and reasons are data. "My route is not accepted": :mod:`attachment`. "Another route answers":
:mod:`precedence`. "The text of a condition": where the finding is made; its type: :mod:`findings`.
Never here: I/O, clocks, anything that knows a proxy.
"""

from gatehouse.frontends.gateway_api.assemble import compile_gateway, gateway_addresses
from gatehouse.frontends.gateway_api.classes import gateways
from gatehouse.frontends.gateway_api.inputs import (
    INDEXES,
    KINDS,
    SETTINGS_KEY,
    DataPlane,
    Settings,
    Unsupported,
    decode,
)
from gatehouse.frontends.gateway_api.merging import merge_status
from gatehouse.frontends.gateway_api.status import Status, gateways_of_route, status, subjects

__all__ = [
    "INDEXES",
    "KINDS",
    "SETTINGS_KEY",
    "DataPlane",
    "Settings",
    "Status",
    "Unsupported",
    "compile_gateway",
    "decode",
    "gateway_addresses",
    "gateways",
    "gateways_of_route",
    "merge_status",
    "status",
    "subjects",
]
