"""Gateway API v1: every kind of it, and what it refers to.

Reading order, from the ground up: :mod:`inputs` (what is read) and :mod:`findings` (what can be
said of it), :mod:`classes`, :mod:`listening` (which listeners are served), :mod:`extensions`
(policies of ``gateway.nginx.org``), :mod:`attaching` (which routes attach to which), :mod:`routing`
(what their rules mean), :mod:`needs` and :mod:`assemble` (the build plan), :mod:`reporting`
(statuses). Each module answers one question; kinds of routes and reasons are data. "My route is not
accepted": ``attaching/attachment``. "Another route answers": ``routing/precedence``. "The text of a
condition": where the finding is made; its type: :mod:`findings`. Never here: I/O, clocks, anything
that knows a proxy.
"""

from gatehouse.compiler.frontends.gateway_api.classes import controller_of, gateways
from gatehouse.compiler.frontends.gateway_api.extensions.authentication import fetches
from gatehouse.compiler.frontends.gateway_api.extensions.parameters import (
    Provisioning,
    provisioning,
)
from gatehouse.compiler.frontends.gateway_api.inputs import (
    CONTROLLERS,
    CRD_VERSIONS_KEY,
    ENVOY,
    INDEXES,
    KINDS,
    NGINX,
    OPTIONAL_KINDS,
    ROUTE_KINDS,
    ROUTES,
    SETTINGS_KEY,
    STATUS_KINDS,
    CRDVersions,
    Fetch,
    Fetched,
    ProgrammedInput,
    Settings,
    Unsupported,
    decode,
)
from gatehouse.compiler.frontends.gateway_api.listeners.addresses import gateway_addresses
from gatehouse.compiler.frontends.gateway_api.listeners.listeners import service_ports
from gatehouse.compiler.frontends.gateway_api.status.merge import merge_status
from gatehouse.compiler.frontends.gateway_api.status.status import (
    gateways_of_route,
    status,
    subjects,
)
from gatehouse.compiler.frontends.gateway_api.status.types import Status
from gatehouse.compiler.frontends.gateway_api.translate import compile_gateway

__all__ = [
    "CRD_VERSIONS_KEY",
    "CRDVersions",
    "CONTROLLERS",
    "ENVOY",
    "INDEXES",
    "KINDS",
    "NGINX",
    "OPTIONAL_KINDS",
    "STATUS_KINDS",
    "Provisioning",
    "ROUTES",
    "ROUTE_KINDS",
    "SETTINGS_KEY",
    "ProgrammedInput",
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
    "provisioning",
    "service_ports",
    "status",
    "subjects",
]
