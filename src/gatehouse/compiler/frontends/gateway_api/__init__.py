"""Front end for all kinds of Gateway API v1 and the objects that they refer to.

Reading order:
- :mod:`front_end` (a record for each kind), :mod:`buckets`, :mod:`inputs` (settings) and
  :mod:`findings` (reasons, conditions);
- :mod:`crd_version` and :mod:`classes` (which Gateways are managed), :mod:`allowed_namespaces`,
  :mod:`reference_grants`, :mod:`hostnames`, :mod:`header_names`;
- :mod:`listeners` (validity, conflicts, certificates, addresses);
- :mod:`extensions` (policies, filters and parameters of ``gateway.nginx.org``);
- :mod:`attachment` (which routes attach to which listeners);
- :mod:`routes` (rules, filters, backends);
- :mod:`dependencies` (what routes refer to) and :mod:`translate` (the IR of a Gateway);
- :mod:`status` (desired statuses).

Where to look: "my route is not accepted": ``attachment/parent_refs``. "Another route answers":
``routes/precedence``. The message of a condition: where the finding is made; its type:
:mod:`findings`. Never here: I/O, clocks, anything that knows a proxy.
"""

from gatehouse.apis.gateway import CONTROLLERS
from gatehouse.compiler.frontends.gateway_api.classes import class_controller, gateways
from gatehouse.compiler.frontends.gateway_api.extensions.authentication import fetches
from gatehouse.compiler.frontends.gateway_api.extensions.parameters import provisioning
from gatehouse.compiler.frontends.gateway_api.findings import Reason
from gatehouse.compiler.frontends.gateway_api.front_end import (
    FILTER_KINDS,
    GATEWAY_API_FRONT_END,
    GATEWAY_API_INDEXES,
    ROUTE_KINDS,
    decode_gateway_api_object,
    gateway_api_status,
    gateway_api_subjects,
)
from gatehouse.compiler.frontends.gateway_api.inputs import (
    BACK_END_FINDINGS_KEY,
    CRD_VERSIONS_KEY,
    CREDENTIAL_KINDS,
    ENVOY,
    INPUT_INDEXES,
    NGINX,
    ROUTES_KEY,
    SETTINGS_KEY,
    ControllerSettings,
    CRDVersions,
    Fetched,
    ProgrammedInput,
    RejectedCredential,
    RejectedObject,
    Replacement,
    UrlFetch,
    key_of,
    rejected_credential_key,
    rejected_object_key,
    rejected_ports_key,
    rejections_key,
    replacement_key,
    unavailable_kind_key,
    unready_servers_key,
)
from gatehouse.compiler.frontends.gateway_api.listeners.addresses import gateway_addresses
from gatehouse.compiler.frontends.gateway_api.listeners.listeners import service_ports
from gatehouse.compiler.frontends.gateway_api.status.merge import merge_gateway_api_status
from gatehouse.compiler.frontends.gateway_api.status.route_status import gateways_of_route
from gatehouse.compiler.frontends.gateway_api.status.types import GatewayApiStatus
from gatehouse.compiler.frontends.gateway_api.translate import compile_gateway

__all__ = [
    "BACK_END_FINDINGS_KEY",
    "CRD_VERSIONS_KEY",
    "CREDENTIAL_KINDS",
    "CRDVersions",
    "CONTROLLERS",
    "ENVOY",
    "FILTER_KINDS",
    "GATEWAY_API_FRONT_END",
    "GATEWAY_API_INDEXES",
    "INPUT_INDEXES",
    "NGINX",
    "Reason",
    "ROUTES_KEY",
    "ROUTE_KINDS",
    "SETTINGS_KEY",
    "ProgrammedInput",
    "UrlFetch",
    "Fetched",
    "ControllerSettings",
    "GatewayApiStatus",
    "RejectedCredential",
    "RejectedObject",
    "Replacement",
    "key_of",
    "rejected_credential_key",
    "rejected_object_key",
    "rejected_ports_key",
    "rejections_key",
    "unavailable_kind_key",
    "unready_servers_key",
    "replacement_key",
    "compile_gateway",
    "class_controller",
    "decode_gateway_api_object",
    "fetches",
    "gateway_addresses",
    "gateways",
    "gateways_of_route",
    "merge_gateway_api_status",
    "provisioning",
    "service_ports",
    "gateway_api_status",
    "gateway_api_subjects",
]
