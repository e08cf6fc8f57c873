"""Gateway API v1: every kind of it, and what it refers to.

Reading order: :mod:`inputs` (what is read), :mod:`listeners` (with :mod:`sets`, :mod:`conflicts`,
:mod:`certificates`, :mod:`clients`), :mod:`attachment` and :mod:`exclusion`, :mod:`rules`
(:mod:`filters`, :mod:`calls`, :mod:`retries`, :mod:`backends`, :mod:`backend_tls`,
:mod:`precedence`) and :mod:`streams`, :mod:`extensions` (policies of ``gateway.nginx.org``),
:mod:`hosts`, :mod:`needs`, :mod:`assemble` (the build plan), :mod:`findings` and :mod:`status`
(with :mod:`gateway_status`, :mod:`route_status`, :mod:`policy_status`, :mod:`extension_status`),
:mod:`merging`. Each module
answers one question; kinds of routes and reasons are data. "My route is not accepted":
:mod:`attachment`. "Another route answers": :mod:`precedence`. "The text of a condition": where the
finding is made; its type: :mod:`findings`. Never here: I/O, clocks, anything that knows a proxy.
"""

from gatehouse.frontends.gateway_api.addresses import gateway_addresses
from gatehouse.frontends.gateway_api.assemble import compile_gateway
from gatehouse.frontends.gateway_api.classes import controller_of, gateways
from gatehouse.frontends.gateway_api.extensions.authentication import fetches
from gatehouse.frontends.gateway_api.inputs import (
    CONTROLLERS,
    ENVOY,
    INDEXES,
    KINDS,
    NGINX,
    OPTIONAL_KINDS,
    ROUTE_KINDS,
    SETTINGS_KEY,
    DataPlane,
    Fetch,
    Fetched,
    Settings,
    Unsupported,
    decode,
)
from gatehouse.frontends.gateway_api.listeners import service_ports
from gatehouse.frontends.gateway_api.merging import merge_status
from gatehouse.frontends.gateway_api.status import gateways_of_route, status, subjects
from gatehouse.frontends.gateway_api.statuses import Status

__all__ = [
    "CONTROLLERS",
    "ENVOY",
    "INDEXES",
    "KINDS",
    "NGINX",
    "OPTIONAL_KINDS",
    "ROUTE_KINDS",
    "SETTINGS_KEY",
    "DataPlane",
    "Fetch",
    "Fetched",
    "Settings",
    "Status",
    "Unsupported",
    "compile_gateway",
    "controller_of",
    "decode",
    "fetches",
    "gateway_addresses",
    "gateways",
    "gateways_of_route",
    "merge_status",
    "service_ports",
    "status",
    "subjects",
]
