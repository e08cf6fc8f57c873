"""Write the definitions of the group ``gatehouse.dev`` that Gatehouse brings along.

Run by `make gatehouse-dev`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import descriptions
import security_policy
import traffic_policy
from definitions import AGE, accepted_by, column, condition, definition, write
from descriptions import described
from nginx_gateway import LOGGING, SPECS
from openapi_schemas import (
    BOOLEAN,
    COUNT,
    LOOSE,
    NAME,
    STRING,
    TIME,
    Schema,
    fields,
    one_of,
    several,
)
from taken_over_descriptions import NGF_STATUS
from view_schemas import spec_schema
from workload_schema import WORKLOAD

from gatehouse.compiler.frontends.gateway_api.extensions.extension_filters import (
    EXTENSION_FILTERS,
    ExtensionFilter,
)

API_VERSION = "gatehouse.dev/v1alpha1"
SELECTOR = fields(
    matchLabels={"type": "object", "additionalProperties": STRING},
    matchExpressions=several(
        fields(
            "key operator",
            (
                "self.operator in ['In', 'NotIn'] ? has(self.values) && size(self.values) > 0"
                " : !has(self.values) || size(self.values) == 0",
                "values are for operators In and NotIn",
            ),
            key=STRING,
            operator=one_of("In", "NotIn", "Exists", "DoesNotExist"),
            values=several(STRING, most=64),
        ),
        most=16,
    ),
)
_LABELS = r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?(\.[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?)*"
HOST = fields(
    "",
    ("has(self.url) != has(self.name)", "a host has either a url or a name"),
    url={
        "type": "string",
        "maxLength": 512,
        "pattern": r"^https?://[^/?#@\s]+(/[^?#\s]*)?$",
    },
    name=NAME | {"pattern": f"^{_LABELS}$"},
)
SECRET = fields("name", name=NAME, key={"type": "string", "maxLength": 253})
PORT: Schema = {"type": "integer", "format": "int32", "minimum": 1, "maximum": 65535}
TREATMENT = one_of("Keep", "Drain", "Remove")

LISTENER = fields(
    "port protocol upstream",
    (
        "self.hostname == '' || self.protocol in ['HTTP', 'TLS']",
        "hostname is for HTTP and TLS",
    ),
    port=PORT,
    protocol=one_of("HTTP", "TCP", "UDP", "TLS"),
    hostname={
        "type": "string",
        "maxLength": 253,
        "pattern": rf"^$|^(\*\.)?{_LABELS}$",
        "default": "",
    },
    upstream=NAME,
)
LOAD_BALANCER = fields(
    "hosts",
    (
        "self.hosts.all(h, has(h.url) == (self.type == 'NginxPlus'))",
        "hosts of type NginxPlus have a url, machines of the other types a name",
    ),
    (
        "has(self.listeners) == (self.type != 'NginxPlus')",
        "listeners are needed for types Nginx and Envoy; NGINX Plus has its own",
    ),
    (
        "!has(self.bindAddress) || self.type != 'NginxPlus'",
        "bindAddress is for types Nginx and Envoy",
    ),
    (
        "self.type == 'NginxPlus' || (!has(self.tls) && !has(self.authorizationSecretRef)"
        " && !has(self.parameters) && self.drainSeconds == 0 && self.deletionPolicy == 'Delete')",
        "tls, authorizationSecretRef, parameters, drainSeconds and deletionPolicy are for type "
        "NginxPlus",
    ),
    type=one_of("NginxPlus", "Nginx", "Envoy")
    | {
        "default": "NginxPlus",
        "x-kubernetes-validations": [
            {"rule": "self == oldSelf", "message": "the type of a load balancer cannot change"}
        ],
    },
    bindAddress={
        "type": "string",
        "minLength": 2,
        "maxLength": 45,
    },
    listeners=several(LISTENER, least=1, most=1024)
    | {
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["port", "protocol", "hostname"],
    },
    hosts=several(
        HOST,
        (
            "self.all(a, self.exists_one(b, (has(a.url) ? a.url : a.name)"
            " == (has(b.url) ? b.url : b.name)))",
            "a host may be named once",
        ),
        least=1,
        most=128,
    ),
    tls=fields(
        "",
        (
            "!has(self.caCertificateRef) || self.mode == 'Verify'",
            "caCertificateRef is for mode Verify only",
        ),
        mode=one_of("Verify", "SkipVerify") | {"default": "Verify"},
        caCertificateRef=SECRET,
        clientCertificateRef=SECRET,
        serverName={"type": "string", "maxLength": 253},
    ),
    authorizationSecretRef=SECRET,
    services=fields(
        namespaces=several(
            STRING | {"minLength": 1, "maxLength": 63},
            ("!('*' in self) || size(self) == 1", "* stands for all, and so alone"),
            most=64,
        ),
        selector=SELECTOR,
        annotation=fields("name", name=NAME, value=STRING),
        portPrefix={"type": "string", "minLength": 1, "maxLength": 15, "default": "nlk-"},
        portNames=one_of("Prefix", "Context") | {"default": "Prefix"},
        loadBalancerServers=one_of("NodePort", "Ingress") | {"default": "NodePort"},
    ),
    nodes=fields(
        selector=SELECTOR,
        controlPlane=BOOLEAN | {"default": False},
        notReadyPolicy=TREATMENT | {"default": "Remove"},
        unschedulablePolicy=TREATMENT | {"default": "Keep"},
        onlyWithEndpoints=BOOLEAN | {"default": False},
    ),
    parameters=fields(
        weight=COUNT | {"minimum": 1},
        maxConns=COUNT,
        maxFails=COUNT,
        failTimeout=TIME,
        slowStart=TIME,
    ),
    drainSeconds=COUNT | {"default": 0, "maximum": 86400},
    whenEmpty=one_of("Keep", "Remove") | {"default": "Keep"},
    deletionPolicy=one_of("Retain", "Delete") | {"default": "Delete"},
    resyncSeconds=COUNT | {"default": 300, "minimum": 10, "maximum": 86400},
    timeoutSeconds=COUNT | {"default": 10, "minimum": 1, "maximum": 60},
)
STATUS = fields(
    conditions=several(LOOSE),
    version=STRING,
    readyHosts=STRING,
    hosts=several(LOOSE),
    upstreams=several(LOOSE),
)


HOSTED = fields(
    "parentRefs hosts service",
    parentRefs=several(
        fields(
            "name",
            name=NAME,
            namespace=STRING | {"minLength": 1, "maxLength": 63},
            sectionName=NAME,
        ),
        (
            "self.all(a, self.exists_one(b, a.name == b.name"
            " && (has(a.__namespace__) ? a.__namespace__ : '')"
            " == (has(b.__namespace__) ? b.__namespace__ : '')"
            " && (has(a.sectionName) ? a.sectionName : '')"
            " == (has(b.sectionName) ? b.sectionName : '')))",
            "a listener may be named once",
        ),
        least=1,
        most=16,
    ),
    hosts=several(
        {
            "type": "string",
            "minLength": 1,
            "maxLength": 254,
            "pattern": r"^[A-Za-z0-9]([-A-Za-z0-9]*[A-Za-z0-9])?"
            r"(\.[A-Za-z0-9]([-A-Za-z0-9]*[A-Za-z0-9])?)*\.?$",
        },
        ("self.all(a, !isIP(a))", "a host is a name, no address"),
        ("self.all(a, size(a.lowerAscii().split('.')) > 1)", "a host has at least one dot"),
        least=1,
        most=16,
    ),
    service=fields(
        "name",
        name=STRING | {"minLength": 1, "maxLength": 63},
        port=PORT | {"default": 443},
    ),
    advertiseAddress=STRING
    | {
        "maxLength": 45,
        "x-kubernetes-validations": [
            {"rule": "isIP(self)", "message": "advertiseAddress must be an IPv4 or IPv6 address"}
        ],
    },
    advertisePort=PORT | {"default": 443},
    allowedSources=several(
        STRING | {"maxLength": 49},
        ("self.all(a, isCIDR(a) || isIP(a))", "a source is an address or a range (CIDR)"),
        most=256,
    ),
    dns=fields(
        publish=BOOLEAN | {"default": False},
        ttlSeconds=COUNT | {"default": 60, "minimum": 1, "maximum": 86400},
    )
    | {"default": {}},
)
HOSTED_STATUS = fields(
    conditions=several(LOOSE),
    hosts=several(STRING),
    addresses=several(LOOSE),
    readyEndpoints=COUNT,
    owned=fields(hosts=several(STRING), address=STRING, service=STRING),
)


LOAD_BALANCER_COLUMNS: list[Schema] = [
    condition("Accepted"),
    condition("Programmed"),
    column("Ready", ".status.readyHosts"),
    column("Version", ".status.version", priority=1),
    AGE,
]

HOSTED_COLUMNS: list[Schema] = [
    column("Host", ".spec.hosts[0]"),
    condition("Accepted"),
    condition("Programmed"),
    column("Ready", ".status.readyEndpoints") | {"type": "integer"},
    column("Address", ".status.addresses[0].value"),
    column("Advertised", ".spec.advertiseAddress", priority=1),
    AGE,
]


_ACCESS_LOG = fields(
    disable=BOOLEAN,
    statusClasses=several(one_of("1xx", "2xx", "3xx", "4xx", "5xx"), most=5),
    samplePercent={"type": "integer", "minimum": 1, "maximum": 100},
    format=one_of("json", "text"),
)

_LOGGING = fields(**LOGGING["properties"], accessLog=_ACCESS_LOG)


_NGINX_ONLY = (
    "zoneSize",
    "serverTokens",
    "useClusterIP",
    "dnsResolver",
    "metrics",
    "workerConnections",
    "waf",
    "nginxPlus",
)
_OWN = {"logging": _LOGGING, "kubernetes": WORKLOAD}
"""Fields that lack those parts of NginxProxy that are specific to NGINX, or not served."""
GATEWAY_PARAMETERS = {
    **SPECS["NginxProxy"],
    "properties": {
        name: _OWN.get(name, schema)
        for name, schema in SPECS["NginxProxy"]["properties"].items()
        if name not in _NGINX_ONLY
    }
    | {"pathNormalization": one_of("Full", "DotSegments")},
}
"""The fields of NginxProxy that are not specific to NGINX, and those of Gatehouse."""


def definitions() -> list[Schema]:
    """Return all CRDs of the group."""
    return [
        definition(
            *("ExternalLoadBalancer", API_VERSION),
            described(LOAD_BALANCER, descriptions.EXTERNAL_LOAD_BALANCER),
            described(STATUS, descriptions.STATUS),
            *(LOAD_BALANCER_COLUMNS, "xlb"),
        ),
        definition(
            *("GatewayParameters", API_VERSION),
            described(GATEWAY_PARAMETERS, descriptions.GATEWAY_PARAMETERS),
            fields(),
            *([AGE], "gwp"),
        ),
        definition(
            *("HostedAPIServer", API_VERSION),
            described(HOSTED, descriptions.HOSTED_API_SERVER),
            described(HOSTED_STATUS, descriptions.HOSTED_STATUS),
            *(HOSTED_COLUMNS, "hosted"),
        ),
        definition(
            *("SecurityPolicy", API_VERSION),
            described(security_policy.SPEC, security_policy.TEXTS),
            described(traffic_policy.STATUS, traffic_policy.STATUS_TEXTS),
            *(accepted_by("ancestors"), "spolicy"),
        ),
        definition(
            *("TrafficPolicy", API_VERSION),
            described(traffic_policy.SPEC, traffic_policy.TEXTS),
            described(traffic_policy.STATUS, traffic_policy.STATUS_TEXTS),
            *(accepted_by("ancestors"), "tpolicy"),
        ),
        *filter_definitions(EXTENSION_FILTERS.values()),
    ]


def filter_definitions(filters: Iterable[ExtensionFilter]) -> Iterator[Schema]:
    """Yield the CRDs of those filters that belong to the group, from their views."""
    for kind in filters:
        if kind.resource.api_version == API_VERSION:
            yield definition(
                *(kind.resource.kind, API_VERSION),
                described(spec_schema(kind.view), {}),
                described(fields(controllers=several(LOOSE)), NGF_STATUS),
                accepted_by("controllers"),
            )


if __name__ == "__main__":
    write(definitions())
