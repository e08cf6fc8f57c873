"""Write the definitions of the group ``gateway.nginx.org`` that Gatehouse brings along.

Run by `make nginx-gateway`. The interface is that of NGINX Gateway Fabric, so that objects of its
users are taken as they are. Fields that are not served are left out, and so dropped with a warning,
or have no schema below them if the status of the Gateway names them.
"""

from __future__ import annotations

import copy
import json
import sys
from pathlib import Path
from typing import Any

import descriptions
from descriptions import described
from taken_over_descriptions import NGF, NGF_STATUS

from gatehouse.apis.resource_limits import PARAMETER_LIMITS

Schema = dict[str, Any]

GATEWAY_API = "gateway.networking.k8s.io"

STRING: Schema = {"type": "string"}
BOOLEAN: Schema = {"type": "boolean"}
SIZE: Schema = {"type": "string", "pattern": r"^\d{1,4}(k|m|g)?$"}
TIME: Schema = {"type": "string", "pattern": r"^[0-9]{1,4}(ms|s|m|h)?$"}
COUNT: Schema = {"type": "integer", "format": "int32", "minimum": 0}
SECURE_URL: Schema = {"type": "string", "pattern": "^https://"}
NAME: Schema = {"type": "string", "minLength": 1, "maxLength": 253}


def fields(needed: str = "", /, *rules: tuple[str, str], **properties: Schema) -> Schema:
    """Return the schema of an object; ``needed`` names the required fields."""
    # kube-apiserver stores no empty object. An apply would conflict with its owner each time.
    result: Schema = {"type": "object", **({"properties": properties} if properties else {})}
    if needed:
        result["required"] = needed.split()
    if rules:
        result["x-kubernetes-validations"] = [checked(*rule) for rule in rules]
    return result


def checked(rule: str, message: str) -> Schema:
    """Return a validation rule."""
    return {"rule": rule, "message": message}


def several(items: Schema, *rules: tuple[str, str], least: int = 0, most: int = 0) -> Schema:
    """Return the schema of a list."""
    result: Schema = {"type": "array", "items": items}
    result |= {"minItems": least} if least else {}
    result |= {"maxItems": most} if most else {}
    if rules:
        result["x-kubernetes-validations"] = [checked(*rule) for rule in rules]
    return result


def one_of(*values: str) -> Schema:
    """Return the schema of an enum."""
    return {"type": "string", "enum": list(values)}


TARGET = fields("group kind name", group={"type": "string", "maxLength": 253}, kind=NAME, name=NAME)
_TRAFFIC = ("Gateway", "HTTPRoute", "GRPCRoute")


def targets(*kinds: str, groups: tuple[str, ...] = (GATEWAY_API,)) -> Schema:
    """Return the schema of ``targetRefs``."""
    listed = ", ".join(f"'{kind}'" for kind in kinds)
    group_list = ", ".join(f"'{group}'" for group in groups)
    names = " or ".join(group or "empty" for group in groups)
    return several(
        TARGET,
        (f"self.all(t, t.kind in [{listed}])", f"kind must be one of {', '.join(kinds)}"),
        (f"self.all(t, t.group in [{group_list}])", f"group must be {names}"),
        (
            "self.all(a, self.exists_one(b, a.kind == b.kind && a.name == b.name))",
            "an object may be named once",
        ),
        least=1,
        most=16,
    )


def target(*kinds: str) -> Schema:
    """Return the schema of ``targetRef``."""
    listed = ", ".join(f"'{kind}'" for kind in kinds)
    return TARGET | {
        "x-kubernetes-validations": [
            checked(f"self.kind in [{listed}]", f"kind must be one of {', '.join(kinds)}"),
            checked(f"self.group == '{GATEWAY_API}'", f"group must be {GATEWAY_API}"),
        ]
    }


REFERENCE = fields("name", name=NAME)


def object_reference(*kinds: str) -> Schema:
    """Return the schema of a reference to an object of the core group, in any namespace."""
    return fields(
        "kind name",
        group={"type": "string", "enum": [""]},
        kind=one_of(*kinds),
        name=NAME,
        namespace={"type": "string", "minLength": 1, "maxLength": 63},
    )


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
_CEILING: Schema = {"type": "integer", "format": "int64", "minimum": 0}
LOOSE: Schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
_PORT = COUNT | {"minimum": 1, "maximum": 65535}
_PERCENT = COUNT | {"minimum": 1, "maximum": 100}
_SHARE: Schema = {"x-kubernetes-int-or-string": True, "anyOf": [{"type": "integer"}, STRING]}
_PATCHES = several(
    # No rule checks `value`: a field without a type does not exist in CEL. The front end does.
    fields(
        "value",
        type=one_of("StrategicMerge", "Merge", "JSONPatch") | {"default": "StrategicMerge"},
        value={"x-kubernetes-preserve-unknown-fields": True},
    ),
    most=16,
)
_POD = fields(
    terminationGracePeriodSeconds=COUNT,
    affinity=LOOSE,
    nodeSelector={"type": "object", "additionalProperties": STRING},
    tolerations=several(LOOSE, most=64),
    volumes=several(LOOSE, most=64),
    topologySpreadConstraints=several(LOOSE, most=16),
)
_CONTAINER = fields(
    image=fields(
        repository=STRING,
        tag=STRING,
        pullPolicy=one_of("Always", "Never", "IfNotPresent"),
    ),
    resources=LOOSE,
    lifecycle=LOOSE,
    readinessProbe=fields(initialDelaySeconds=COUNT, periodSeconds=COUNT | {"minimum": 1}),
    hostPorts=several(fields("port containerPort", port=_PORT, containerPort=_PORT), most=64),
    volumeMounts=several(LOOSE, most=64),
)
WORKLOAD = fields(
    "",
    (
        "!has(self.deployment) || !has(self.daemonSet)",
        "deployment and daemonSet exclude each other",
    ),
    deployment=fields(
        replicas=COUNT,
        autoscaling=fields(
            "enable maxReplicas",
            (
                "!has(self.minReplicas) || self.minReplicas <= self.maxReplicas",
                "minReplicas must not be more than maxReplicas",
            ),
            enable=BOOLEAN,
            minReplicas=COUNT | {"minimum": 1},
            maxReplicas=COUNT | {"minimum": 1},
            targetCPUUtilizationPercentage=_PERCENT,
            targetMemoryUtilizationPercentage=_PERCENT,
            metrics=several(LOOSE, most=16),
            behavior=LOOSE,
        ),
        podDisruptionBudget=fields(
            "",
            (
                "has(self.minAvailable) != has(self.maxUnavailable)",
                "needs one of minAvailable and maxUnavailable",
            ),
            minAvailable=_SHARE,
            maxUnavailable=_SHARE,
            unhealthyPodEvictionPolicy=one_of("IfHealthyBudget", "AlwaysAllow"),
        ),
        pod=_POD,
        container=_CONTAINER,
        patches=_PATCHES,
    ),
    daemonSet=fields(pod=_POD, container=_CONTAINER, patches=_PATCHES),
    service=fields(
        type=one_of("LoadBalancer", "ClusterIP", "NodePort"),
        externalTrafficPolicy=one_of("Cluster", "Local"),
        loadBalancerIP=STRING,
        loadBalancerClass=STRING,
        loadBalancerSourceRanges=several(STRING, most=64),
        nodePorts=several(
            fields("port listenerPort", port=_PORT, listenerPort=_PORT),
            ("self.all(a, self.exists_one(b, a.port == b.port))", "a port may be named once"),
            most=64,
        ),
        patches=_PATCHES,
    ),
    networkPolicy=fields(
        enable=BOOLEAN,
        metricsFrom=several(LOOSE, most=64),
        egressTo=several(LOOSE, most=64),
        patches=_PATCHES,
    ),
)
"""Schema of the Kubernetes objects of a data plane."""


def _with_unserved(workload: Schema) -> Schema:
    """Add fields of NginxProxy that no data plane serves, so that its condition names them."""
    result = copy.deepcopy(workload)
    for kind in ("deployment", "daemonSet"):
        properties = result["properties"][kind]["properties"]
        properties["wafContainers"] = LOOSE
        container = properties["container"] = copy.deepcopy(properties["container"])
        container["properties"]["debug"] = BOOLEAN
        container["properties"]["readinessProbe"]["properties"] |= {
            "port": _PORT,
            "path": {"type": "string", "pattern": r"^/[a-zA-Z0-9/_\-\.~]*$"},
            "expose": BOOLEAN,
        }
    return result


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
        kubernetes=_with_unserved(WORKLOAD),
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
                                spec=described(SPECS[kind], NGF[kind]),
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
