"""Write the definitions of the group ``gateway.nginx.org`` that Gatehouse brings along.

Run by `make nginx-gateway`. The interface is that of NGINX Gateway Fabric, so that objects of its
users are taken as they are. Fields that are not served are left out, and so dropped with a warning,
or have no schema below them if the status of the Gateway names them.
"""

from __future__ import annotations

from collections.abc import Iterator

from definitions import AGE, accepted_by, definition, write
from descriptions import described
from openapi_schemas import (
    BOOLEAN,
    COUNT,
    LOOSE,
    NAME,
    SECURE_URL,
    SIZE,
    STRING,
    TIME,
    Schema,
    fields,
    one_of,
    several,
)
from taken_over_descriptions import NGF, NGF_STATUS
from target_references import REFERENCE, object_reference, target, targets
from view_schemas import spec_schema
from workload_schema import WORKLOAD, with_unserved

from gatehouse.apis.nginx_gateway import SnippetsFilter
from gatehouse.apis.resource_limits import PARAMETER_LIMITS

_TRAFFIC = ("Gateway", "HTTPRoute", "GRPCRoute")
_CEILING: Schema = {"type": "integer", "format": "int64", "minimum": 0}
SNIPPETS_FILTER = spec_schema(SnippetsFilter)
ANSWER: dict[str, Schema] = {
    "dryRun": BOOLEAN,
    "logLevel": one_of("info", "notice", "warn", "error"),
    "rejectCode": {"type": "integer", "format": "int32", "minimum": 400, "maximum": 599},
}
CLAIM = fields(
    "name",
    name=NAME,
    match=one_of("Exact", "Regex") | {"default": "Exact"},
    values=several(STRING, most=32),
    proxySetHeader={"type": "string", "pattern": "^[A-Za-z0-9-]{1,256}$"},
)
REQUIRE = one_of("All", "Any") | {"default": "All"}
AUTHORIZATION = fields(
    require=REQUIRE,
    rules=several(
        fields("claims", require=REQUIRE, claims=several(CLAIM, least=1, most=32)), most=32
    ),
)
SPAN_ATTRIBUTES = several(
    fields(
        "key value",
        key={"type": "string", "minLength": 1, "maxLength": 255},
        value={"type": "string", "minLength": 1, "maxLength": 255},
    ),
    ("self.all(a, self.exists_one(b, a.key == b.key))", "a key may be given once"),
    most=64,
)
_HOST_LABEL = "[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?"
TELEMETRY = fields(
    disabledFeatures=several(one_of("DisableTracing"), most=8),
    exporter=fields(
        endpoint={
            "type": "string",
            "maxLength": 512,
            "pattern": rf"^(https?://)?{_HOST_LABEL}(\.{_HOST_LABEL})*(:\d{{1,5}})?$",
        },
        interval=TIME,
        batchSize=COUNT,
        batchCount=COUNT,
        tls=fields(
            caCertificateRefs=several(object_reference("ConfigMap", "Secret"), least=1, most=8),
            clientCertificateRef=object_reference("Secret"),
        ),
    ),
    serviceName={"type": "string", "maxLength": 127, "pattern": "^[a-zA-Z0-9_-]+$"},
    spanAttributes=SPAN_ATTRIBUTES,
)
LOGGING = fields(agentLevel=one_of("debug", "info", "warning", "error", "panic", "fatal"))


SPECS: dict[str, Schema] = {
    "ClientSettingsPolicy": fields(
        "targetRef",
        targetRef=target(*_TRAFFIC),
        body=fields(maxSize=SIZE, bufferSize=SIZE, timeout=TIME),
        keepAlive=fields(
            requests=COUNT,
            time=TIME,
            minTimeout=TIME,
            timeout=fields(
                "",
                ("!has(self.header) || has(self.server)", "header may be set with server only"),
                server=TIME,
                header=TIME,
            ),
        ),
    ),
    "ProxySettingsPolicy": fields(
        "targetRefs",
        targetRefs=targets(*_TRAFFIC),
        buffering=fields(
            disable=BOOLEAN,
            bufferSize=SIZE,
            buffers=fields("number size", number=COUNT | {"minimum": 2, "maximum": 256}, size=SIZE),
            busyBuffersSize=SIZE,
        ),
        timeout=fields(connect=TIME, read=TIME, send=TIME),
    ),
    "RateLimitPolicy": fields(
        "targetRefs",
        targetRefs=targets(*_TRAFFIC),
        rateLimit=fields(
            local=fields(
                rules=several(
                    fields(
                        "key rate",
                        (
                            "!(has(self.delay) && has(self.noDelay) && self.noDelay)",
                            "delay and noDelay exclude each other",
                        ),
                        key=STRING,
                        rate={"type": "string", "pattern": r"^\d+r/[sm]$"},
                        zoneSize=SIZE,
                        burst=COUNT,
                        delay=COUNT,
                        noDelay=BOOLEAN,
                        **ANSWER,
                    ),
                    most=16,
                )
            ),
            **ANSWER,
        ),
    ),
    "UpstreamSettingsPolicy": fields(
        "targetRefs",
        (
            "!has(self.loadBalancingMethod) || !self.loadBalancingMethod.startsWith('hash')"
            " || has(self.hashMethodKey)",
            "hashMethodKey is needed for loadBalancingMethod hash",
        ),
        targetRefs=targets("Service", groups=("", "core")),
        zoneSize=SIZE,
        keepAlive=fields(connections=COUNT, requests=COUNT, time=TIME, timeout=TIME),
        loadBalancingMethod=one_of(
            "round_robin",
            "least_conn",
            "ip_hash",
            "hash",
            "hash consistent",
            "random",
            "random two",
            "random two least_conn",
            "random two least_time=header",
            "random two least_time=last_byte",
            "least_time header",
            "least_time last_byte",
            "least_time header inflight",
            "least_time last_byte inflight",
        ),
        hashMethodKey={"type": "string", "pattern": r"^\$[a-z_]+$"},
        useClusterIP=BOOLEAN,
    ),
    "ObservabilityPolicy": fields(
        "targetRefs",
        targetRefs=targets("HTTPRoute", "GRPCRoute"),
        tracing=fields(
            "strategy",
            (
                "!has(self.ratio) || self.strategy == 'ratio'",
                "ratio may be set with strategy ratio only",
            ),
            strategy=one_of("ratio", "parent"),
            ratio=COUNT | {"maximum": 100},
            context=one_of("extract", "inject", "propagate", "ignore"),
            spanName={"type": "string", "minLength": 1, "maxLength": 255},
            spanAttributes=SPAN_ATTRIBUTES,
        ),
    ),
    "NginxProxy": fields(
        "",
        (
            "!has(self.rewriteClientIP) || !has(self.rewriteClientIP.mode)"
            " || has(self.rewriteClientIP.trustedAddresses)",
            "rewriteClientIP.trustedAddresses is needed for rewriteClientIP.mode",
        ),
        ipFamily=one_of("dual", "ipv4", "ipv6"),
        disableHTTP2=BOOLEAN,
        disableSNIHostValidation=BOOLEAN,
        disableBaseHeaders=several(
            one_of(
                "*",
                "X-Forwarded-For",
                "X-Forwarded-Proto",
                "X-Forwarded-Host",
                "X-Forwarded-Port",
                "X-Real-IP",
            ),
            most=6,
        ),
        useClusterIP=BOOLEAN,
        zoneSize=SIZE,
        serverTokens=STRING,
        rewriteClientIP=fields(
            mode=one_of("ProxyProtocol", "XForwardedFor"),
            setIPRecursively=BOOLEAN,
            trustedAddresses=several(
                fields("type value", type=one_of("CIDR", "IPAddress", "Hostname"), value=NAME),
                most=64,
            ),
        ),
        compression=fields(
            "type",
            type=one_of("gzip"),
            level=COUNT | {"minimum": 1, "maximum": 9},
            minLength=COUNT,
            mimeTypes=several(STRING, most=32),
            buffers=fields("number size", number=COUNT | {"minimum": 1}, size=SIZE),
            gzip=fields(
                vary=BOOLEAN,
                httpVersion=one_of("1.0", "1.1"),
                disable=several(STRING, most=16),
                proxied=several(STRING, most=9),
            ),
        ),
        logging=fields(
            **LOGGING["properties"],
            errorLevel=one_of("debug", "info", "notice", "warn", "error", "crit", "alert", "emerg"),
            accessLog=LOOSE,
        ),
        dnsResolver=fields(
            "addresses",
            addresses=several(
                fields("type value", type=one_of("IPAddress", "Hostname"), value=NAME),
                least=1,
                most=16,
            ),
            timeout=TIME,
            cacheTTL=TIME,
            disableIPv6=BOOLEAN,
        ),
        metrics=LOOSE,
        telemetry=TELEMETRY,
        workerConnections=COUNT | {"minimum": 1, "maximum": 65535},
        resourceLimits=fields(**dict.fromkeys(PARAMETER_LIMITS, _CEILING)),
        waf=LOOSE,
        nginxPlus=LOOSE,
        kubernetes=with_unserved(WORKLOAD),
    ),
    "SnippetsFilter": SNIPPETS_FILTER,
    "SnippetsPolicy": fields(
        "targetRefs snippets",
        targetRefs=targets("Gateway"),
        snippets=SNIPPETS_FILTER["properties"]["snippets"],
    ),
    "WAFPolicy": fields(
        "targetRefs type policySource",
        targetRefs=targets(*_TRAFFIC),
        type=one_of("HTTP", "NIM", "N1C"),
        policySource=LOOSE,
        securityLogs=several(LOOSE, most=32),
    ),
    "PayloadProcessor": fields(
        "targetRef processors",
        targetRef=target("Gateway", "HTTPRoute"),
        processors=several(LOOSE, least=1, most=16),
    ),
    "AuthenticationFilter": fields(
        "type",
        ("self.type != 'Basic' || has(self.basic)", "type Basic needs basic"),
        ("self.type != 'JWT' || has(self.jwt)", "type JWT needs jwt"),
        ("self.type == 'Basic' || !has(self.basic)", "basic is for type Basic only"),
        ("self.type == 'JWT' || !has(self.jwt)", "jwt is for type JWT only"),
        ("self.type != 'OIDC' || has(self.oidc)", "type OIDC needs oidc"),
        ("self.type == 'OIDC' || !has(self.oidc)", "oidc is for type OIDC only"),
        type=one_of("Basic", "JWT", "OIDC"),
        basic=fields("realm secretRef", realm=STRING, secretRef=REFERENCE),
        jwt=fields(
            "realm source",
            realm=STRING,
            source=one_of("File", "Remote"),
            file=fields("secretRef", secretRef=REFERENCE),
            remote=fields(
                "uri",
                uri=SECURE_URL,
                caCertificateRefs=several(REFERENCE, most=1),
            ),
            keyCache=TIME,
            leeway=TIME,
            authorization=AUTHORIZATION,
        ),
        oidc=fields(
            "issuer clientID clientSecretRef",
            issuer=SECURE_URL,
            clientID=STRING | {"minLength": 1},
            clientSecretRef=REFERENCE,
            configURL=SECURE_URL,
            redirectURI=STRING,
            caCertificateRefs=several(REFERENCE, most=8),
            crlSecretRef=REFERENCE,
            pkce=BOOLEAN,
            scopes=several(STRING),
            extraAuthArgs={"type": "object", "additionalProperties": STRING},
            session=fields(cookieName=STRING, timeout=TIME),
            logout=fields(
                uri=STRING,
                postLogoutURI=STRING,
                frontChannelLogoutURI=STRING,
                tokenHint=BOOLEAN,
            ),
            authorization=AUTHORIZATION,
        ),
    ),
}
SHORT = {
    "ClientSettingsPolicy": "cspolicy",
    "ProxySettingsPolicy": "pspolicy",
    "RateLimitPolicy": "rlpolicy",
    "UpstreamSettingsPolicy": "uspolicy",
    "AuthenticationFilter": "authfilter",
}


def definitions() -> Iterator[Schema]:
    """Yield all CRDs of the group."""
    for kind, schema in SPECS.items():
        version = "v1alpha2" if kind in ("ObservabilityPolicy", "NginxProxy") else "v1alpha1"
        entries = "controllers" if kind.endswith("Filter") else "ancestors"
        yield definition(
            *(kind, f"gateway.nginx.org/{version}"),
            described(schema, NGF.get(kind, {})),
            described(fields(**{entries: several(LOOSE)}), NGF_STATUS),
            accepted_by(entries) if kind != "NginxProxy" else [AGE],
            SHORT.get(kind, ""),
        )


if __name__ == "__main__":
    write(definitions())
