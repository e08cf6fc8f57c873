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

from gatehouse.compiler.frontends.gateway_api.classes import controller_of, gateways
from gatehouse.compiler.frontends.gateway_api.extensions.authentication import fetches
from gatehouse.compiler.frontends.gateway_api.extensions.parameters import (
    Provisioning,
    provisioning,
)
from gatehouse.compiler.frontends.gateway_api.front_end import (
    FRONT_END,
    INDEXES,
    ROUTE_KINDS,
    decode,
    status,
    subjects,
)
from gatehouse.compiler.frontends.gateway_api.inputs import (
    BACK_END_FINDINGS_KEY,
    CONTROLLERS,
    CRD_VERSIONS_KEY,
    ENVOY,
    NGINX,
    ROUTES,
    SETTINGS_KEY,
    CRDVersions,
    Fetch,
    Fetched,
    ProgrammedInput,
    RejectedObject,
    Replacement,
    Settings,
    key_of,
    rejected_certificate_key,
    rejected_object_key,
    rejected_ports_key,
    rejections_key,
    replacement_key,
)
from gatehouse.compiler.frontends.gateway_api.listeners.addresses import gateway_addresses
from gatehouse.compiler.frontends.gateway_api.listeners.listeners import service_ports
from gatehouse.compiler.frontends.gateway_api.status.merge import merge_status
from gatehouse.compiler.frontends.gateway_api.status.route_status import gateways_of_route
from gatehouse.compiler.frontends.gateway_api.status.types import Status
from gatehouse.compiler.frontends.gateway_api.translate import compile_gateway

__all__ = [
    "BACK_END_FINDINGS_KEY",
    "CRD_VERSIONS_KEY",
    "CRDVersions",
    "CONTROLLERS",
    "ENVOY",
    "FRONT_END",
    "INDEXES",
    "NGINX",
    "Provisioning",
    "ROUTES",
    "ROUTE_KINDS",
    "SETTINGS_KEY",
    "ProgrammedInput",
    "Fetch",
    "Fetched",
    "Settings",
    "Status",
    "RejectedObject",
    "Replacement",
    "key_of",
    "rejected_certificate_key",
    "rejected_object_key",
    "rejected_ports_key",
    "rejections_key",
    "replacement_key",
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
