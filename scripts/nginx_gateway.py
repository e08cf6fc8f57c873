"""Write the definitions of the group ``gateway.nginx.org`` that Gatehouse brings along.

Run by `make nginx-gateway`. The interface is that of NGINX Gateway Fabric, so that objects of its
users are taken as they are. Fields that are not served are left out, and so dropped with a warning,
or have no schema below them if the status of the Gateway names them.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import descriptions
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
from workload_schema import WORKLOAD, with_unserved

from gatehouse.apis.resource_limits import PARAMETER_LIMITS

_TRAFFIC = ("Gateway", "HTTPRoute", "GRPCRoute")
_CEILING: Schema = {"type": "integer", "format": "int64", "minimum": 0}
SNIPPETS = several(
    fields(
        "context value",
        context=one_of("main", "http", "http.server", "http.server.location"),
        value={"type": "string", "minLength": 1},
    ),
    (
        "self.all(s, self.exists_one(o, o.context == s.context))",
        "a context may be given once",
    ),
    least=1,
    most=4,
)
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
    "SnippetsFilter": fields("snippets", snippets=SNIPPETS),
    "SnippetsPolicy": fields(
        "targetRefs snippets", targetRefs=targets("Gateway"), snippets=SNIPPETS
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


def definition(kind: str) -> Schema:
    """Return the CRD of a kind."""
    plural = f"{kind.lower()[:-1]}ies" if kind.endswith("y") else f"{kind.lower()}s"
    entries = "controllers" if kind.endswith("Filter") else "ancestors"
    version = "v1alpha2" if kind in ("ObservabilityPolicy", "NginxProxy") else "v1alpha1"
    names: Schema = {
        "kind": kind,
        "listKind": f"{kind}List",
        "plural": plural,
        "singular": kind.lower(),
        "categories": ["gatehouse"],
    }
    if kind in SHORT:
        names["shortNames"] = [SHORT[kind]]
    accepted = f'.status.{entries}[*].conditions[?(@.type=="Accepted")].status'
    columns = [{"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}]
    if kind != "NginxProxy":
        columns.insert(0, {"name": "Accepted", "type": "string", "jsonPath": accepted})
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.gateway.nginx.org"},
        "spec": {
            "group": "gateway.nginx.org",
            "names": names,
            "scope": "Namespaced",
            "versions": [
                {
                    "name": version,
                    "served": True,
                    "storage": True,
                    "subresources": {"status": {}},
                    "additionalPrinterColumns": columns,
                    "schema": {
                        "openAPIV3Schema": descriptions.top_level(
                            kind,
                            fields(
                                "spec",
                                apiVersion=STRING,
                                kind=STRING,
                                metadata={"type": "object"},
                                spec=described(SPECS[kind], NGF.get(kind, {})),
                                status=described(fields(**{entries: several(LOOSE)}), NGF_STATUS),
                            ),
                            f"gateway.nginx.org/{version}",
                        )
                    },
                }
            ],
        },
    }


def main() -> None:
    """Write one file per kind into the directory given."""
    target = Path(sys.argv[1])
    for kind in SPECS:
        crd = definition(kind)
        text = json.dumps(crd, indent=1, sort_keys=True)
        (target / f"{crd['metadata']['name']}.json").write_text(text + "\n")


if __name__ == "__main__":
    main()
