"""Write the definitions of the group ``proxy.kubegateway.io`` that Gatehouse brings along.

Run by `make kubegateway`. The interface is KubeGateway's, so that existing objects work
unchanged. The CRDs reject what KubeGateway's admission rejects and accept the rest. The status of
the object reports accepted fields without a meaning. References to Secrets are an addition of
Gatehouse.
"""

from __future__ import annotations

import taken_over_descriptions as texts
from definitions import AGE, column, condition, definition, write
from descriptions import described
from openapi_schemas import BOOLEAN, COUNT, LOOSE, NAME, STRING, Schema, fields, one_of, several

API_VERSION = "proxy.kubegateway.io/v1alpha1"

BYTES: Schema = {"type": "string", "format": "byte"}
ENDPOINT: Schema = {"type": "string", "maxLength": 512}
SWITCH = one_of("", "on", "off")
SECRET = fields("namespace name", namespace=NAME | {"maxLength": 63}, name=NAME)


def given(field: str, of: str = "self") -> str:
    """Return an expression that checks whether an optional text is non-empty."""
    return f"(has({of}.{field}) && size({of}.{field}) > 0)"


PAIR = (f"{given('keyData')} == {given('certData')}", "keyData and certData belong together")

CLIENT = fields(
    "",
    PAIR,
    (
        "!has(self.secretRef) || "
        f"!({given('keyData')} || {given('certData')} || {given('bearerToken')})",
        "give credentials either here or by secretRef",
    ),
    (
        "!has(self.qps) || self.qps == 0 || (has(self.burst) && self.burst >= self.qps)",
        "burst must be at least qps",
    ),
    insecure=BOOLEAN,
    bearerToken=BYTES,
    keyData=BYTES,
    certData=BYTES,
    caData=BYTES,
    qps=COUNT,
    burst=COUNT,
    qpsDivisor=COUNT,
    serverName={"type": "string", "maxLength": 253},
    secretRef=SECRET,
)
SERVING = fields(
    "",
    (
        f"!has(self.secretRef) || !({given('keyData')} || {given('certData')})",
        "give the certificate either here or by secretRef",
    ),
    keyData=BYTES,
    certData=BYTES,
    clientCAData=BYTES,
    serverNames=several({"type": "string", "maxLength": 253}, most=256),
    secretRef=SECRET,
)
IN_FLIGHT = fields(max=COUNT | {"default": 0})
BUCKET = fields(
    "qps",
    ("has(self.burst) && self.burst >= self.qps", "burst must be at least qps"),
    qps=COUNT | {"minimum": 1},
    burst=COUNT,
)
KINDS = ("exempt", "maxRequestsInflight", "tokenBucket")
SCHEMA = fields(
    "name",
    (
        f"[{', '.join(f'has(self.{kind})' for kind in KINDS)}].filter(x, x).size() == 1",
        f"exactly one of {', '.join(KINDS)} must be given",
    ),
    (
        "!has(self.globalMaxRequestsInflight) || has(self.maxRequestsInflight)",
        "globalMaxRequestsInflight needs maxRequestsInflight beside it",
    ),
    (
        "!has(self.globalMaxRequestsInflight) || !has(self.maxRequestsInflight) || "
        "self.globalMaxRequestsInflight.max >= self.maxRequestsInflight.max",
        "globalMaxRequestsInflight.max must be at least maxRequestsInflight.max",
    ),
    (
        "!has(self.globalTokenBucket) || has(self.tokenBucket)",
        "globalTokenBucket needs tokenBucket beside it",
    ),
    (
        "!has(self.globalTokenBucket) || !has(self.tokenBucket) || "
        "(self.globalTokenBucket.qps >= self.tokenBucket.qps && "
        "(!has(self.globalTokenBucket.burst) || !has(self.tokenBucket.burst) || "
        "self.globalTokenBucket.burst >= self.tokenBucket.burst))",
        "globalTokenBucket must allow at least what tokenBucket allows",
    ),
    name=NAME,
    strategy=one_of("", "local", "globalAllocate", "globalCount"),
    exempt=fields(),
    maxRequestsInflight=IN_FLIGHT,
    tokenBucket=BUCKET,
    globalMaxRequestsInflight=IN_FLIGHT,
    globalTokenBucket=BUCKET,
)
VALUES = several(STRING)
RULE = fields(
    verbs=VALUES,
    apiGroups=VALUES,
    resources=VALUES,
    resourceNames=VALUES,
    users=VALUES,
    serviceAccounts=several(fields(name=STRING, namespace=STRING)),
    userGroups=VALUES,
    nonResourceURLs=VALUES,
)
SUBSET = several(ENDPOINT, most=64)
POLICY = fields(
    "rules",
    (
        "!has(self.upstreamSubset) || !has(self.upsteamSubset) || "
        "self.upstreamSubset == self.upsteamSubset",
        "upstreamSubset and upsteamSubset are one field: give one of them",
    ),
    strategy=one_of("", "RoundRobin") | {"default": "RoundRobin"},
    upstreamSubset=SUBSET,
    upsteamSubset=SUBSET,
    rules=several(RULE, least=1),
    flowControlSchemaName={"type": "string", "maxLength": 253},
    logMode=SWITCH,
)


def subsets(field: str) -> tuple[str, str]:
    """Return the rule that a subset names existing servers; one list of the endpoints is cheap."""
    return (
        "[self.servers.map(s, s.endpoint)].all(known, self.dispatchPolicies.all(p, "
        f"!has(p.{field}) || p.{field}.all(u, u in known)))",
        f"{field} of every policy must be among the endpoints of servers",
    )


HTTPS = "self.servers.exists(s, s.endpoint.startsWith('https://'))"
CONFIG = "self.clientConfig"
SPEC = fields(
    "servers dispatchPolicies",
    (
        f"!{HTTPS} || (has({CONFIG}) && ((has({CONFIG}.insecure) && {CONFIG}.insecure) || "
        f"has({CONFIG}.secretRef) || {given('caData', CONFIG)}))",
        "clientConfig must have caData or secretRef for https, or say insecure",
    ),
    (
        f"!{HTTPS} || (has({CONFIG}) && (has({CONFIG}.secretRef) || "
        f"{given('bearerToken', CONFIG)} || {given('keyData', CONFIG)}))",
        "clientConfig must have bearerToken, keyData and certData, or secretRef for https",
    ),
    (
        "self.dispatchPolicies.all(p, !has(p.flowControlSchemaName) || "
        "p.flowControlSchemaName == '' || (has(self.flowControl) && "
        "has(self.flowControl.flowControlSchemas) && self.flowControl.flowControlSchemas"
        ".exists(s, s.name == p.flowControlSchemaName)))",
        "flowControlSchemaName of every policy must be among flowControl.flowControlSchemas",
    ),
    subsets("upstreamSubset"),
    subsets("upsteamSubset"),
    servers=several(
        fields(
            "endpoint",
            endpoint=ENDPOINT | {"pattern": "^https?://"},
            disabled=BOOLEAN,
        ),
        (
            "self.all(s, s.endpoint.startsWith('https://')) || "
            "self.all(s, s.endpoint.startsWith('http://'))",
            "all endpoints must have the same scheme",
        ),
        least=1,
        most=64,
    ),
    clientConfig=CLIENT,
    secureServing=SERVING,
    flowControl=fields(
        flowControlSchemas=several(SCHEMA, most=256)
        | {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]}
    ),
    dispatchPolicies=several(POLICY, least=1, most=256),
    logging=fields(mode=SWITCH),
)
STATUS = fields(
    conditions=several(LOOSE),
    gateways=several(LOOSE),
    hosts=several(STRING),
    ownedHosts=several(
        fields(
            gateway=STRING,
            hosts=several(STRING),
        )
    ),
    featureGates=several(STRING),
)

DETAIL: dict[str, Schema] = {
    "maxRequestsInflight": IN_FLIGHT,
    "tokenBucket": fields(qps=COUNT, burst=COUNT),
}
LEVEL: Schema = {"type": "integer", "format": "int32"}
LIMITS = fields(
    upstreamCluster=STRING,
    instance=STRING,
    limitItemConfigurations=several(fields(name=STRING, strategy=STRING, **DETAIL)),
)
LEVELS = fields(limitItemStatuses=several(fields(name=STRING, requestLevel=LEVEL, **DETAIL)))


COLUMNS: dict[str, list[Schema]] = {
    "UpstreamCluster": [
        condition("Accepted"),
        condition("ResolvedRefs", "Resolved"),
        condition("Programmed"),
        column("Hosts", ".status.hosts", priority=1),
        AGE,
    ],
    "RateLimitCondition": [
        column("Cluster", ".spec.upstreamCluster"),
        column("Instance", ".spec.instance"),
        AGE,
    ],
}


def definitions() -> list[Schema]:
    """Return all CRDs of the group."""
    return [
        definition(
            *("UpstreamCluster", API_VERSION),
            described(SPEC, texts.UPSTREAM_CLUSTER),
            described(STATUS, texts.UPSTREAM_CLUSTER_STATUS),
            *(COLUMNS["UpstreamCluster"], "uc"),
            scope="Cluster",
        ),
        definition(
            *("RateLimitCondition", API_VERSION),
            described(LIMITS, texts.RATE_LIMIT_CONDITION),
            described(LEVELS, texts.RATE_LIMIT_CONDITION_STATUS),
            *(COLUMNS["RateLimitCondition"], "rlc"),
            scope="Cluster",
            needed="",
        ),
    ]


if __name__ == "__main__":
    write(definitions())
