"""Schema and descriptions of TrafficPolicy of ``gatehouse.dev``."""

from __future__ import annotations

from openapi_schemas import BOOLEAN, COUNT, LOOSE, STRING, Schema, checked, fields, one_of, several
from target_references import GATEWAY_API, targets

from gatehouse.compiler.frontends.gateway_api.extensions import portable_policies as policies
from gatehouse.compiler.frontends.gateway_api.extensions import portable_values, service_settings
from gatehouse.compiler.frontends.gateway_api.extensions.policy_fields import MAX_BURST

_DURATION: Schema = {
    "type": "string",
    "maxLength": 32,
    "pattern": "^([0-9]{1,5}(h|m|s|ms)){1,4}$",
}
_QUANTITY: Schema = {
    "x-kubernetes-int-or-string": True,
    "anyOf": [{"type": "integer"}, STRING],
    "maxLength": 32,
    "pattern": r"^[0-9]{1,16}(\.[0-9]{1,3})?(k|M|G|T|Ki|Mi|Gi|Ti)?$",
}
_NUMBER = COUNT | {"minimum": 1}


def _attribute(*types: str) -> Schema:
    return fields(
        "type",
        (
            f"has(self.name) == (self.type != '{types[0]}')",
            f"name is for all types but {types[0]}, which need it",
        ),
        (
            "!has(self.name) || !self.name.contains(self.type == 'Header' ? '_' : '-')",
            "names of headers have no underscore, other names no hyphen",
        ),
        type=one_of(*types),
        name={"type": "string", "maxLength": 128, "pattern": "^[A-Za-z0-9_-]+$"},
    )


def _targets() -> Schema:
    schema = targets(*policies.ROUTING_KINDS, "Service", groups=(GATEWAY_API, ""))
    schema["x-kubernetes-validations"].append(
        checked(
            "self.all(t, (t.kind == 'Service') == (t.group == ''))",
            "the group of a Service is empty, and only of a Service",
        )
    )
    return schema


def _rules() -> Schema:
    return fields(
        "rules",
        rules=several(
            fields(
                "requests per",
                requests=_NUMBER | {"maximum": policies.MAX_REQUEST_RATE},
                per=one_of(*policies.RATE_PERIODS),
                burst=COUNT | {"maximum": MAX_BURST, "default": 0},
                key=_attribute(*portable_values.RATE_KEYS),
            ),
            least=1,
            most=16,
        ),
    )


_KEEP_ALIVE = {"maxRequests": _NUMBER, "maxLifetime": _DURATION, "idleTimeout": _DURATION}

SPEC = fields(
    "targetRefs",
    (
        "!has(self.backend) || self.targetRefs.all(t, t.kind == 'Service')",
        "backend is for Services",
    ),
    (
        "self.targetRefs.all(t, t.kind != 'Service') || !(has(self.client) || has(self.timeouts)"
        " || has(self.responseBuffering) || has(self.compression) || has(self.retries)"
        " || has(self.rateLimit))",
        "a Service has the field backend only",
    ),
    (
        "!has(self.client) || !has(self.client.maxHeaderSize)"
        " || self.targetRefs.all(t, t.kind == 'Gateway')",
        "client.maxHeaderSize is for Gateways",
    ),
    (
        "!has(self.retries) || self.targetRefs.all(t, t.kind != 'GRPCRoute')",
        "retries are not for GRPCRoutes",
    ),
    targetRefs=_targets(),
    client=fields(
        maxBodySize=_QUANTITY,
        maxHeaderSize=_QUANTITY,
        bodyTimeout=_DURATION,
        keepAlive=fields(**_KEEP_ALIVE),
    ),
    timeouts=fields(connect=_DURATION, send=_DURATION, read=_DURATION),
    responseBuffering=one_of(*policies.POLICY_MODES),
    compression=fields(
        "mode",
        mode=one_of(*policies.POLICY_MODES),
        types=several(
            {
                "type": "string",
                "maxLength": policies.MAX_MEDIA_TYPE_LENGTH,
                "pattern": f"^{policies.MEDIA_TYPE_PATTERN}$",
            },
            (
                f"self.all(t, !t.startsWith('{policies.CALL_TYPE}'))",
                "messages of gRPC calls are not compressed",
            ),
            least=1,
            most=32,
        ),
        minLength=COUNT
        | {"minimum": policies.MIN_COMPRESSED_BYTES, "maximum": policies.MAX_COMPRESSED_BYTES},
    ),
    retries=fields(
        "attempts",
        attempts=COUNT | {"maximum": policies.MAX_RETRY_ATTEMPTS},
        codes=several(
            {
                "type": "integer",
                "format": "int32",
                "minimum": policies.RETRY_CODES[0],
                "maximum": policies.RETRY_CODES[1],
            },
            most=16,
        ),
        backoff=_DURATION,
    ),
    rateLimit=fields(
        local=_rules(),
        shared=_rules(),
        statusCode={"type": "integer", "format": "int32", "enum": list(policies.STATUS_CODES)},
        dryRun=BOOLEAN,
    ),
    backend=fields(
        loadBalancing=fields(
            "method",
            (
                "has(self.hashKey) == (self.method == 'Hash')",
                "hashKey is for method Hash, which needs it",
            ),
            method=one_of(*service_settings.BALANCING_METHODS),
            hashKey=_attribute(*portable_values.HASH_KEYS),
        ),
        keepAlive=fields(maxIdleConnections=COUNT, **_KEEP_ALIVE),
        circuitBreaker=fields(
            maxConnections=_NUMBER,
            maxPendingRequests=_NUMBER,
            maxParallelRequests=_NUMBER,
            maxConnectionsPerEndpoint=_NUMBER,
        ),
        healthChecks=fields(
            passive=fields(
                "maxFailures",
                maxFailures=_NUMBER | {"maximum": service_settings.MAX_FAILURES},
                ejectionTime=_DURATION,
            ),
            active=fields(
                path={"type": "string", "pattern": f"^{service_settings.CHECK_PATH_PATTERN}$"},
                interval=_DURATION,
                timeout=_DURATION,
                maxFailures=_NUMBER | {"maximum": service_settings.MAX_CHECKS},
                minSuccesses=_NUMBER | {"maximum": service_settings.MAX_CHECKS},
            ),
        ),
    ),
)

_KEY = "ClientAddress, or an attribute with a name: "
_KEY_NAME = "Name of the attribute, without regard to case for headers."

TEXTS = {
    "targetRefs": "Objects that the policy applies to, in its namespace.",
    "targetRefs[].group": "API group of the target.",
    "targetRefs[].kind": "Kind of the target.",
    "targetRefs[].name": "Name of the target.",
    "client": "Limits towards clients of a Gateway or route.",
    "client.maxBodySize": "Maximum size of a request body in bytes, as a quantity such as 10Mi. "
    "0 is no limit. Default: no limit.",
    "client.maxHeaderSize": "Maximum size of the headers of a request to a Gateway, in bytes: from "
    f"{portable_values.MIN_HEADER_SIZE} to {portable_values.MAX_HEADER_SIZE}. Default: 256Ki, and "
    "with NGINX at most 64Ki in a line.",
    "client.bodyTimeout": "Timeout between two parts of a request body.",
    "client.keepAlive": "Keep-alive connections of clients.",
    "client.keepAlive.maxRequests": "Maximum number of requests on one connection.",
    "client.keepAlive.maxLifetime": "Maximum age of a connection that accepts requests.",
    "client.keepAlive.idleTimeout": "Timeout of an idle connection. 0s disables keep-alive.",
    "timeouts": "Timeouts towards backends of a Gateway or route.",
    "timeouts.connect": "Timeout of a connection attempt.",
    "timeouts.send": "Timeout between two parts of a request to the backend. Envoy uses the "
    "longer of send and read for both.",
    "timeouts.read": "Timeout between two parts of a response of the backend.",
    "responseBuffering": "Enabled reads responses of backends ahead of slow clients, Disabled "
    "sends each part at once. Default: that of the proxy.",
    "compression": "Compression of responses with gzip for clients that accept it. That of a route "
    "replaces that of its Gateway. Default: that of the parameters of the Gateway.",
    "compression.mode": "Enabled, or Disabled.",
    "compression.types": "Media types of compressed responses, besides text/html. Default: "
    f"{', '.join(policies.COMPRESSED_TYPES)}.",
    "compression.minLength": "Minimum length in bytes of a compressed response. Those of unknown "
    f"length are compressed. Default: {policies.COMPRESSED_BYTES}.",
    "retries": "Retries of requests of HTTPRoutes whose rule has no retry. Those of a route "
    "replace those of its Gateway.",
    "retries.attempts": "Number of retries after the first attempt. 0 means none.",
    "retries.codes": "Status codes after which a request is sent again, besides failed "
    "connections.",
    "retries.backoff": f"Pause before a retry, at most {policies.MAX_RETRY_PAUSE}. Default: none.",
    "rateLimit": "Limits of the request rate of a Gateway or route. Those of a route replace those "
    "of its Gateway.",
    "rateLimit.local": "Limits that each instance of the proxy counts on its own.",
    "rateLimit.shared": "Limits that all instances of all data planes count together, by a rate "
    "limit service. Not with NGINX.",
    "rateLimit.statusCode": "HTTP status of rejected requests: 429 or 503. Default: 503.",
    "rateLimit.dryRun": "Count excess requests without rejecting them. Default: false.",
    "backend": "Settings of Services as backends.",
    "backend.loadBalancing": "Choice of the endpoint for a request. Default: round robin.",
    "backend.loadBalancing.method": "RoundRobin, LeastConnections, Random, or Hash, which sends "
    "requests with the same key to the same endpoint.",
    "backend.loadBalancing.hashKey": "Attribute of requests for method Hash.",
    "backend.loadBalancing.hashKey.type": f"{_KEY}Header, QueryParameter, Cookie.",
    "backend.loadBalancing.hashKey.name": _KEY_NAME,
    "backend.keepAlive": "Keep-alive connections to endpoints.",
    "backend.keepAlive.maxIdleConnections": "Maximum number of idle connections of a process of "
    "the proxy. 0 disables keep-alive.",
    "backend.keepAlive.maxRequests": "Maximum number of requests on one connection.",
    "backend.keepAlive.maxLifetime": "Maximum age of a connection that is used again.",
    "backend.keepAlive.idleTimeout": "Timeout of an idle connection.",
    "backend.circuitBreaker": "Limits of a Service port, which each instance of the proxy counts "
    "on its own. Requests beyond them are rejected. Default: no limits.",
    "backend.circuitBreaker.maxConnections": "Maximum number of connections to all endpoints. "
    "Requests beyond it wait.",
    "backend.circuitBreaker.maxPendingRequests": "Maximum number of requests that wait for a "
    "connection.",
    "backend.circuitBreaker.maxParallelRequests": "Maximum number of requests without a complete "
    "response.",
    "backend.circuitBreaker.maxConnectionsPerEndpoint": "Maximum number of connections to one "
    "endpoint that are in use. NGINX rejects a request if all endpoints have so many; with Envoy "
    "it waits.",
}

for _counted in ("local", "shared"):
    TEXTS |= {
        f"rateLimit.{_counted}.rules": "Rules, all of which a request must meet.",
        f"rateLimit.{_counted}.rules[].requests": "Number of requests in the period.",
        f"rateLimit.{_counted}.rules[].per": "Period: Second or Minute.",
        f"rateLimit.{_counted}.rules[].burst": "Number of requests above the rate that are served "
        "at once.",
        f"rateLimit.{_counted}.rules[].key": "Attribute, each value of which has a rate of its "
        "own. Requests without the attribute are not limited. Default: all requests together.",
        f"rateLimit.{_counted}.rules[].key.type": f"{_KEY}Header, QueryParameter.",
        f"rateLimit.{_counted}.rules[].key.name": _KEY_NAME,
    }

_EJECTION = (
    f"from {service_settings.MIN_EJECTION_TIME} to {service_settings.MAX_EJECTION_TIME}, in whole "
    "seconds, rounded up"
)
TEXTS |= {
    "backend.healthChecks": "Health of endpoints, besides their readiness.",
    "backend.healthChecks.passive": "Ejection of endpoints that requests do not reach. Default: "
    "none.",
    "backend.healthChecks.passive.maxFailures": "Number of failed connections and timeouts after "
    "which an endpoint gets no requests for a time. Envoy also counts responses with 502, 503 and "
    "504.",
    "backend.healthChecks.passive.ejectionTime": f"Time without requests: {_EJECTION}. Default: "
    f"{service_settings.EJECTION_TIME}.",
    "backend.healthChecks.active": "Requests of Envoy itself that find out which endpoints work. "
    "Default: none.",
    "backend.healthChecks.active.path": "Path that answers with a status from 200 to 399. gRPC "
    "services are asked by the gRPC health checking protocol. Default: /.",
    "backend.healthChecks.active.interval": "Time between two checks of an endpoint: from "
    f"{service_settings.MIN_CHECK_INTERVAL} to {service_settings.MAX_CHECK_INTERVAL}. Default: "
    f"{service_settings.CHECK_INTERVAL}.",
    "backend.healthChecks.active.timeout": "Timeout of a check: from "
    f"{service_settings.MIN_CHECK_TIMEOUT} to {service_settings.MAX_CHECK_TIMEOUT}. Default: "
    f"{service_settings.CHECK_TIMEOUT}.",
    "backend.healthChecks.active.maxFailures": "Number of failed checks, one after the other, "
    f"after which an endpoint gets no requests. Default: {service_settings.CHECK_FAILURES}.",
    "backend.healthChecks.active.minSuccesses": "Number of good checks, one after the other, after "
    f"which an endpoint gets requests again. Default: {service_settings.CHECK_SUCCESSES}.",
}

STATUS = fields(ancestors=several(LOOSE))
STATUS_TEXTS = {"ancestors": "Conditions of the policy by Gateway, or by route."}
