"""Descriptions of the fields of ``gateway.nginx.org``, ``proxy.kubegateway.io`` and
``inference.networking.k8s.io``.

The kinds are those of NGINX Gateway Fabric, KubeGateway and the Gateway API Inference Extension.
The texts say what Gatehouse does.
"""

from __future__ import annotations

import descriptions

_REFERENCED = "Name of a Secret in the namespace of the object."
_NAME = "Name of the target."

_TARGETS = {
    "targetRefs": "Objects that the policy applies to, in its namespace.",
    "targetRefs[].group": "API group of the target.",
    "targetRefs[].kind": "Kind of the target.",
    "targetRefs[].name": _NAME,
}
_TARGET = {
    "targetRef": "Object that the policy applies to, in its namespace.",
    "targetRef.group": "API group of the target.",
    "targetRef.kind": "Kind of the target.",
    "targetRef.name": _NAME,
}


def _authorization(at: str) -> dict[str, str]:
    return {
        f"{at}.authorization": "Claims that a user must have. Default: none.",
        f"{at}.authorization.require": "Whether all rules must match, or any of them.",
        f"{at}.authorization.rules": "Rules about claims.",
        f"{at}.authorization.rules[].require": "Whether all claims of the rule must match, or any.",
        f"{at}.authorization.rules[].claims": "Conditions on claims.",
        f"{at}.authorization.rules[].claims[].name": "Name of the claim. A name with dots may be "
        "a path into nested claims.",
        f"{at}.authorization.rules[].claims[].match": "Exact compares strings, Regex uses regular "
        "expressions.",
        f"{at}.authorization.rules[].claims[].values": "Values, of which one must match.",
        f"{at}.authorization.rules[].claims[].proxySetHeader": "Request header that passes the "
        "claim to the backend. Default: none.",
    }


_ANSWER = {
    "dryRun": "Count and log excess requests without rejecting them. Default: false.",
    "logLevel": "Level of log entries about rejected requests: info, notice, warn or error.",
    "rejectCode": "HTTP status of rejected requests. Default: 503.",
}

NGF: dict[str, dict[str, str]] = {
    "ClientSettingsPolicy": {
        **_TARGET,
        "body": "Limits of request bodies.",
        "body.maxSize": "Maximum size of a request body, such as 10m. 0 is no limit. A larger one "
        "gets status 413.",
        "body.bufferSize": "Size of the part of a request body that is kept in memory.",
        "body.timeout": "Maximum time between two reads of a request body.",
        "keepAlive": "Settings of persistent connections with clients.",
        "keepAlive.requests": "Maximum number of requests on one connection.",
        "keepAlive.time": "Maximum time in which a connection is used for requests.",
        "keepAlive.minTimeout": "Minimum time in which an idle connection stays open when the "
        "proxy exits gracefully.",
        "keepAlive.timeout": "Time after which an idle connection is closed.",
        "keepAlive.timeout.server": "Time that the proxy observes. 0 disables persistent "
        "connections.",
        "keepAlive.timeout.header": "Time that the response header Keep-Alive announces.",
    },
    "ProxySettingsPolicy": {
        **_TARGETS,
        "buffering": "Buffers of responses of backends.",
        "buffering.disable": "Pass a response to the client as it arrives. Default: false.",
        "buffering.bufferSize": "Size of the buffer of the first part of a response, which has the "
        "headers.",
        "buffering.buffers": "Buffers of one connection.",
        "buffering.buffers.number": "Number of buffers.",
        "buffering.buffers.size": "Size of each buffer.",
        "buffering.busyBuffersSize": "Total size of the buffers that may be busy with sending to "
        "the client.",
        "timeout": "Timeouts towards backends.",
        "timeout.connect": "Time limit of establishing a connection.",
        "timeout.read": "Maximum time between two reads of a response.",
        "timeout.send": "Maximum time between two writes of a request.",
    },
    "RateLimitPolicy": {
        **_TARGETS,
        "rateLimit": "Limits of requests.",
        **{f"rateLimit.{name}": f"{text}" for name, text in _ANSWER.items()},
        "rateLimit.local": "Limits that each data plane instance applies by itself.",
        "rateLimit.local.rules": "Rules. A request must meet all of them.",
        "rateLimit.local.rules[].key": "Requests with the same key share a limit: a variable of "
        "NGINX, such as $binary_remote_addr.",
        "rateLimit.local.rules[].rate": "Permitted rate, such as 10r/s or 100r/m.",
        "rateLimit.local.rules[].zoneSize": "Size of the shared memory of the keys. Default: 10m.",
        "rateLimit.local.rules[].burst": "Number of excess requests that are permitted at once. "
        "Default: 0.",
        "rateLimit.local.rules[].delay": "Number of excess requests that are not delayed.",
        "rateLimit.local.rules[].noDelay": "Do not delay excess requests of the burst.",
        **{f"rateLimit.local.rules[].{name}": text for name, text in _ANSWER.items()},
    },
    "UpstreamSettingsPolicy": {
        **_TARGETS,
        "zoneSize": "Size of the shared memory of the upstream.",
        "keepAlive": "Settings of persistent connections to the backends.",
        "keepAlive.connections": "Maximum number of idle connections that each worker keeps. 0 "
        "disables persistent connections.",
        "keepAlive.requests": "Maximum number of requests on one connection.",
        "keepAlive.time": "Maximum time in which a connection is used for requests.",
        "keepAlive.timeout": "Time after which an idle connection is closed.",
        "loadBalancingMethod": "Method by which the endpoint of a request is selected. Methods "
        "with least_time need NGINX Plus.",
        "hashMethodKey": "Key of the methods hash and hash consistent: a variable of NGINX, such "
        "as $remote_addr.",
        "useClusterIP": "Connect to the address of the Service instead of to its endpoints. "
        "Default: false.",
    },
    "ObservabilityPolicy": {
        **_TARGETS,
        "tracing": "Traces of requests.",
        "tracing.strategy": "Selection of traced requests: ratio takes a share of them, parent "
        "those that the client traces.",
        "tracing.ratio": "Share of traced requests in percent, for the strategy ratio.",
        "tracing.context": "Treatment of the headers traceparent and tracestate: extract reads "
        "them, inject sends new ones, propagate does both, ignore does nothing. Default: ignore.",
        "tracing.spanName": "Name of the spans. Default: namespace/name/rule of the route.",
        "tracing.spanAttributes": "Attributes of the spans.",
        "tracing.spanAttributes[].key": "Name of the attribute.",
        "tracing.spanAttributes[].value": "Value of the attribute.",
    },
    "SnippetsPolicy": _TARGETS,
    "WAFPolicy": {
        **_TARGETS,
        "type": "Type of the policy source. The kind is not served.",
        "policySource": "Source of the policy. The kind is not served.",
        "securityLogs": "Security logs. The kind is not served.",
    },
    "PayloadProcessor": {
        **_TARGET,
        "processors": "Processors of payloads. The kind is not served.",
    },
    "AuthenticationFilter": {
        "type": "Method: Basic (passwords), JWT (tokens) or OIDC (logins).",
        "basic": "Passwords, for type Basic.",
        "basic.realm": "Realm that the response 401 names.",
        "basic.secretRef": "Secret with the users: key auth, in the format of htpasswd.",
        "basic.secretRef.name": _REFERENCED,
        "jwt": "Tokens, for type JWT.",
        "jwt.realm": "Realm that the response 401 names.",
        "jwt.source": "Source of the keys: File is a Secret, Remote is a URL.",
        "jwt.file": "Keys in a Secret.",
        "jwt.file.secretRef": "Secret with the keys: key auth, a JSON Web Key Set.",
        "jwt.file.secretRef.name": _REFERENCED,
        "jwt.remote": "Keys at a URL.",
        "jwt.remote.uri": "HTTPS URL of a JSON Web Key Set. The controller fetches it.",
        "jwt.remote.caCertificateRefs": "Secrets with the CA certificates of the URL. Default: "
        "those of the system.",
        "jwt.remote.caCertificateRefs[].name": _REFERENCED,
        "jwt.keyCache": "Interval in which remote keys are fetched. Default: 5m.",
        "jwt.leeway": "Permitted difference between the clocks of issuer and data plane.",
        **_authorization("jwt"),
        "oidc": "Logins at an OpenID Connect provider, for type OIDC.",
        "oidc.issuer": "HTTPS URL of the provider.",
        "oidc.clientID": "ID of the client at the provider.",
        "oidc.clientSecretRef": "Secret with the client secret: key client-secret.",
        "oidc.clientSecretRef.name": _REFERENCED,
        "oidc.configURL": "URL of the provider's metadata. Default: derived from the issuer.",
        "oidc.redirectURI": "URI to which the provider sends the browser after a login. Default: "
        "a path at the host of the request.",
        "oidc.caCertificateRefs": "Secrets with the CA certificates of the provider. Default: "
        "those of the system.",
        "oidc.caCertificateRefs[].name": _REFERENCED,
        "oidc.crlSecretRef": "Secret with revoked certificates: key ca.crl.",
        "oidc.crlSecretRef.name": _REFERENCED,
        "oidc.pkce": "Use Proof Key for Code Exchange (RFC 7636). Default: true.",
        "oidc.scopes": "Requested scopes. openid is always requested.",
        "oidc.extraAuthArgs": "Additional parameters of the request for a login.",
        "oidc.session": "Sessions of users.",
        "oidc.session.cookieName": "Name of the session cookie.",
        "oidc.session.timeout": "Time without a request after which a session ends.",
        "oidc.logout": "End of sessions.",
        "oidc.logout.uri": "Path that ends the session of a user.",
        "oidc.logout.postLogoutURI": "URI to which the browser goes after the end of the session.",
        "oidc.logout.frontChannelLogoutURI": "Path by which the provider ends a session "
        "(front-channel logout).",
        "oidc.logout.tokenHint": "Send the ID token to the provider at a logout. Default: false.",
        **_authorization("oidc"),
    },
    "NginxProxy": {
        **descriptions.GATEWAY_PARAMETERS,
        "serverTokens": "Value of the response header Server: on, off, build, or with NGINX Plus a "
        "text.",
        "useClusterIP": "Connect to the addresses of Services instead of to their endpoints. "
        "Default: false.",
        "workerConnections": "Maximum number of connections of each worker, including those to "
        "backends.",
        "zoneSize": "Size of the shared memory of each upstream.",
        "compression.buffers": "Buffers of one compressed response.",
        "compression.buffers.number": "Number of buffers.",
        "compression.buffers.size": "Size of each buffer.",
        "compression.gzip": "Settings of gzip.",
        "compression.gzip.disable": "Regular expressions of user agents that get no compressed "
        "response.",
        "compression.gzip.httpVersion": "Minimum HTTP version of compressed responses.",
        "compression.gzip.proxied": "Requests of proxies (header Via) whose responses are "
        "compressed.",
        "compression.gzip.vary": "Set the response header Vary. Default: false.",
        "logging": "Logs of the data plane.",
        "logging.accessLog": "Access log: disable, format, escape, statusClasses and "
        "samplePercent.",
        "logging.agentLevel": "Level of the agent's log.",
        "logging.errorLevel": "Level of NGINX's error log.",
        "metrics": "Metrics. port: port of the metrics and health checks of the data plane. "
        "disable: accepted and not served.",
        "waf": "F5 WAF for NGINX. Accepted and not served.",
        "nginxPlus": "Settings of NGINX Plus. Accepted and not served.",
        "dnsResolver": "Name servers for backends that are Services of type ExternalName.",
        "dnsResolver.addresses": "Addresses of the name servers.",
        "dnsResolver.addresses[].type": "IPAddress. Hostname is not supported.",
        "dnsResolver.addresses[].value": "IP address of the name server.",
        "dnsResolver.cacheTTL": "Lifetime of cached answers. Default: that of the answer.",
        "dnsResolver.disableIPv6": "Do not look up IPv6 addresses. Default: false.",
        "dnsResolver.timeout": "Time limit of a look-up.",
    },
}
"""Texts of the fields of ``spec`` by kind of ``gateway.nginx.org``."""

NGF_STATUS = {
    "ancestors": "Conditions of the policy by target.",
    "controllers": "Conditions of the filter by controller.",
}

_LIMITS = {
    "maxRequestsInflight": "Limit of concurrent requests.",
    "maxRequestsInflight.max": "Maximum number of concurrent requests. 0 rejects all.",
    "tokenBucket": "Limit of the rate of requests.",
    "tokenBucket.qps": "Rate in requests per second.",
    "tokenBucket.burst": "Number of requests that are permitted at once.",
}
_SECRET_REFERENCE = {
    "secretRef.namespace": "Namespace of the Secret.",
    "secretRef.name": "Name of the Secret.",
}

_SCHEMA = "flowControl.flowControlSchemas"
_RULES = "dispatchPolicies[].rules"

UPSTREAM_CLUSTER = {
    "servers": "Kube-apiservers of the cluster.",
    "servers[].endpoint": "URL of the server, such as https://10.0.0.1:6443.",
    "servers[].disabled": "Send no requests to the server. Default: false.",
    "clientConfig": "Connections of the gateway to the servers.",
    "clientConfig.bearerToken": "Token of the gateway, base64. A Secret is safer.",
    "clientConfig.caData": "CA certificates of the servers (PEM), base64. Required for https, "
    "unless insecure is set or the Secret has them.",
    "clientConfig.certData": "Client certificate of the gateway (PEM), base64.",
    "clientConfig.keyData": "Private key of the client certificate (PEM), base64. A Secret is "
    "safer.",
    "clientConfig.insecure": "Do not verify the certificates of the servers. Default: false.",
    "clientConfig.serverName": "Name that the certificates of the servers must have. Default: the "
    "host of each endpoint.",
    "clientConfig.qps": "Rate of requests of the gateway's own client. Not used.",
    "clientConfig.burst": "Burst of requests of the gateway's own client. Not used.",
    "clientConfig.qpsDivisor": "Divisor of qps. Not used.",
    "clientConfig.secretRef": "Secret with tls.crt and tls.key, token, ca.crt, or some of them.",
    **{f"clientConfig.{name}": text for name, text in _SECRET_REFERENCE.items()},
    "secureServing": "Connections of clients to the gateway.",
    "secureServing.serverNames": "Hostnames of the cluster, in addition to the name of the object.",
    "secureServing.certData": "Serving certificate (PEM), base64.",
    "secureServing.keyData": "Private key of the serving certificate (PEM), base64. A Secret is "
    "safer.",
    "secureServing.clientCAData": "CA certificates of client certificates (PEM), base64. Default: "
    "client certificates are not accepted.",
    "secureServing.secretRef": "Secret with tls.crt and tls.key, ca.crt for clients, or some of "
    "them.",
    **{f"secureServing.{name}": text for name, text in _SECRET_REFERENCE.items()},
    "flowControl": "Limits of requests.",
    _SCHEMA: "Limits that policies name.",
    f"{_SCHEMA}[].name": "Name of the limit.",
    f"{_SCHEMA}[].exempt": "No limit.",
    f"{_SCHEMA}[].strategy": "Division of the limit: local, globalAllocate or globalCount. "
    "Default: local without a global limit.",
    **{
        f"{_SCHEMA}[].{name}": f"{text} Each data plane counts by itself."
        for name, text in _LIMITS.items()
    },
    f"{_SCHEMA}[].globalMaxRequestsInflight": "Limit of concurrent requests of all data planes "
    "together.",
    f"{_SCHEMA}[].globalMaxRequestsInflight.max": _LIMITS["maxRequestsInflight.max"],
    f"{_SCHEMA}[].globalTokenBucket": "Limit of the rate of requests of all data planes together.",
    f"{_SCHEMA}[].globalTokenBucket.qps": _LIMITS["tokenBucket.qps"],
    f"{_SCHEMA}[].globalTokenBucket.burst": _LIMITS["tokenBucket.burst"],
    "dispatchPolicies": "Policies. The first one with a matching rule decides; a request without "
    "one is rejected.",
    "dispatchPolicies[].strategy": "Load balancing among the servers: RoundRobin.",
    "dispatchPolicies[].upstreamSubset": "Endpoints of the servers that get the requests. Default: "
    "all servers.",
    "dispatchPolicies[].upsteamSubset": "Same as upstreamSubset, in the spelling of KubeGateway.",
    "dispatchPolicies[].flowControlSchemaName": "Name of the limit. Default: no limit.",
    "dispatchPolicies[].logMode": "Access log of the requests: on or off. Default: logging.mode.",
    _RULES: "Rules, of which one must match.",
    f"{_RULES}[].verbs": "Verbs. * is all, a leading - excludes.",
    f"{_RULES}[].apiGroups": "API groups. * is all, a leading - excludes.",
    f"{_RULES}[].resources": "Resources, such as pods or pods/log. * is all, a leading - excludes.",
    f"{_RULES}[].resourceNames": "Names of objects. Empty is all, a leading - excludes.",
    f"{_RULES}[].users": "Users. A trailing * is a prefix, a leading - excludes.",
    f"{_RULES}[].userGroups": "Groups of users. * is all, a leading - excludes.",
    f"{_RULES}[].serviceAccounts": "ServiceAccounts, in addition to users.",
    f"{_RULES}[].serviceAccounts[].namespace": "Namespace of the ServiceAccount.",
    f"{_RULES}[].serviceAccounts[].name": "Name of the ServiceAccount.",
    f"{_RULES}[].nonResourceURLs": "Paths of requests without a resource. A trailing * is a "
    "prefix, a leading - excludes.",
    "logging": "Access log of the cluster.",
    "logging.mode": "on or off. Default: on.",
}

UPSTREAM_CLUSTER_STATUS = {
    "conditions": "Conditions of the object: Accepted, ResolvedRefs, Programmed and others.",
    "gateways": "Conditions by Gateway that serves the object.",
    "hosts": "Hostnames that are served.",
    "ownedHosts": "Hostnames that the object owns. Other objects get one of them only when this "
    "object no longer requests it. Only the controller may write this field.",
    "ownedHosts[].gateway": "Gateway, as namespace/name.",
    "ownedHosts[].hosts": "Hostnames that the object owns there.",
    "featureGates": "Feature gates that are on. An invalid annotation leaves them on. Only the "
    "controller may write this field.",
}

_ITEM = "limitItemConfigurations"

RATE_LIMIT_CONDITION = {
    "upstreamCluster": "Name of the UpstreamCluster.",
    "instance": "Name of the data plane.",
    _ITEM: "Limits of the data plane.",
    f"{_ITEM}[].name": "Name of the limit.",
    f"{_ITEM}[].strategy": "Division of the limit.",
    **{f"{_ITEM}[].{name}": text for name, text in _LIMITS.items()},
}

RATE_LIMIT_CONDITION_STATUS = {
    "limitItemStatuses": "Shares of the data plane, written by the controller.",
    "limitItemStatuses[].name": "Name of the limit.",
    "limitItemStatuses[].requestLevel": "Use of the limit in percent.",
    **{f"limitItemStatuses[].{name}": text for name, text in _LIMITS.items()},
}

INFERENCE_POOL = {
    "selector": "Pods of the pool, in its namespace.",
    "selector.matchLabels": "Labels that a Pod must have, all of them.",
    "targetPorts": "Ports of each Pod. Each one is an endpoint.",
    "targetPorts[].number": "Number of the port.",
    "appProtocol": "Protocol of the ports: http, or kubernetes.io/h2c for HTTP/2 without TLS.",
    "endpointPickerRef": "Service of the program that chooses the Pod of each request. Default: "
    "the proxy chooses.",
    "endpointPickerRef.group": "API group of the object: empty for the core group.",
    "endpointPickerRef.kind": "Kind of the object. Only a Service is served.",
    "endpointPickerRef.name": "Name of the Service, in the namespace of the pool.",
    "endpointPickerRef.port": "Port of the Service. Required for a Service.",
    "endpointPickerRef.port.number": "Number of the port.",
    "endpointPickerRef.failureMode": "Requests while the program does not respond: FailOpen lets "
    "the proxy choose, FailClose answers 503.",
}

INFERENCE_POOL_STATUS = {
    "parents": "State at each Gateway whose routes refer to the pool.",
    "parents[].parentRef": "The Gateway.",
    "parents[].parentRef.group": "API group of the Gateway.",
    "parents[].parentRef.kind": "Kind of the parent.",
    "parents[].parentRef.name": "Name of the Gateway.",
    "parents[].parentRef.namespace": "Namespace of the Gateway. Default: that of the pool.",
    "parents[].controllerName": "Controller that wrote the entry.",
    "parents[].conditions": "Conditions of the pool at the Gateway.",
    "parents[].conditions[].type": "Type of the condition.",
    "parents[].conditions[].status": "True, False or Unknown.",
    "parents[].conditions[].reason": "Reason of the status, for programs.",
    "parents[].conditions[].message": "Reason of the status, for people.",
    "parents[].conditions[].lastTransitionTime": "Time of the last change of the status.",
    "parents[].conditions[].observedGeneration": "Generation of the pool that the entry is about.",
}
