"""Gateway API v1: GatewayClass, Gateway, HTTPRoute, ReferenceGrant; and SnippetsFilter."""

from __future__ import annotations

from typing import Any

from gatehouse.apiserver.schema.shapes import (
    ANY,
    DNS_LABEL,
    DNS_SUBDOMAIN,
    HOSTNAME,
    Schema,
    array,
    choice,
    integer,
    mapping,
    record,
    string,
)

GROUP = "gateway.networking.k8s.io"
KIND = r"^[a-zA-Z]([-a-zA-Z0-9]*[a-zA-Z0-9])?$"
GROUP_NAME = r"^$|^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$"
CONTROLLER = DNS_SUBDOMAIN.removesuffix("$") + r"\/[A-Za-z0-9\/\-._~%!$&'()*+,;=:]+$"
HEADER = r"^[A-Za-z0-9!#$%&'*+\-.^_\x60|~]+$"
DURATION = r"^([0-9]{1,5}(h|m|s|ms)){1,4}$"
METHODS = ("GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH")


def _group(**rest: Any) -> Schema:
    return string(max=253, pattern=GROUP_NAME, **rest)


def _kind(**rest: Any) -> Schema:
    return string(min=1, max=63, pattern=KIND, **rest)


def _name() -> Schema:
    return string(min=1, max=253)


def _namespace() -> Schema:
    return string(min=1, max=63, pattern=DNS_LABEL)


def _port() -> Schema:
    return integer(min=1, max=65535)


def _section(**rest: Any) -> Schema:
    return string(min=1, max=253, pattern=DNS_SUBDOMAIN, **rest)


CONDITIONS = array(record("type status", open_=True, type=string(), status=string()), key=("type",))

_PARENT = record(
    "name",
    group=_group(default=GROUP),
    kind=_kind(default="Gateway"),
    namespace=_namespace(),
    name=_name(),
    sectionName=_section(),
    port=_port(),
)

GATEWAY_CLASS = record(
    "spec",
    spec=record(
        "controllerName",
        controllerName=string(min=1, max=253, pattern=CONTROLLER),
        description=string(max=64),
        parametersRef=record(
            "group kind name", group=_group(), kind=_kind(), name=_name(), namespace=_namespace()
        ),
    ),
    status=record(conditions=CONDITIONS, supportedFeatures=array(record("name", name=string()))),
)

_SECRET_REF = record(
    "name",
    group=_group(default=""),
    kind=_kind(default="Secret"),
    name=_name(),
    namespace=_namespace(),
)

_SELECTOR = record(
    matchLabels=mapping(string()),
    matchExpressions=array(
        record("key operator", key=string(), operator=string(), values=array(string()))
    ),
)

_ALLOWED_ROUTES = record(
    namespaces=record(
        from_=choice("All", "Selector", "Same", default="Same"),
        selector=_SELECTOR,
    )
    | {"default": {"from": "Same"}},
    kinds=array(record("kind", group=_group(default=GROUP), kind=_kind()), max=8),
) | {"default": {"namespaces": {"from": "Same"}}}

_LISTENER = record(
    "name port protocol",
    name=_section(),
    hostname=string(min=1, max=253, pattern=HOSTNAME),
    port=_port(),
    protocol=string(min=1, max=255),
    tls=record(
        mode=choice("Terminate", "Passthrough", default="Terminate"),
        certificateRefs=array(_SECRET_REF, max=64),
        options=mapping(string()),
    ),
    allowedRoutes=_ALLOWED_ROUTES,
)

GATEWAY = record(
    "spec",
    spec=record(
        "gatewayClassName listeners",
        gatewayClassName=_name(),
        listeners=array(_LISTENER, key=("name",), min=1, max=64),
        addresses=array(record(type=string(default="IPAddress"), value=string()), max=16),
        infrastructure=record(
            labels=mapping(string()), annotations=mapping(string()), parametersRef=ANY
        ),
        allowedListeners=ANY,
        tls=ANY,
        defaultScope=string(),
    ),
    status=record(
        addresses=array(record("value", type=string(default="IPAddress"), value=string())),
        conditions=CONDITIONS,
        attachedListenerSets=integer(),
        listeners=array(
            record(
                "name attachedRoutes conditions",
                name=string(),
                supportedKinds=array(record("kind", group=_group(default=GROUP), kind=_kind())),
                attachedRoutes=integer(),
                conditions=CONDITIONS,
            ),
            key=("name",),
        ),
    ),
)

_HEADER_VALUE = record(
    "name value",
    name=string(min=1, max=256, pattern=HEADER),
    value=string(min=1, max=4096),
)
_HEADERS = record(
    set=array(_HEADER_VALUE, key=("name",), max=16),
    add=array(_HEADER_VALUE, key=("name",), max=16),
    remove=array(string(), max=16),
)
_PATH_MODIFIER = record(
    "type",
    type=choice("ReplaceFullPath", "ReplacePrefixMatch"),
    replaceFullPath=string(max=1024),
    replacePrefixMatch=string(max=1024),
)


def _backend(**more: Schema) -> Schema:
    backend = record(
        "name",
        group=_group(default=""),
        kind=_kind(default="Service"),
        name=_name(),
        namespace=_namespace(),
        port=_port(),
    )
    backend["properties"] |= more
    return backend


def _filter() -> Schema:
    return record(
        "type",
        type=choice(
            "RequestHeaderModifier",
            "ResponseHeaderModifier",
            "RequestMirror",
            "RequestRedirect",
            "URLRewrite",
            "ExtensionRef",
            "CORS",
            "ExternalAuth",
        ),
        requestHeaderModifier=_HEADERS,
        responseHeaderModifier=_HEADERS,
        requestMirror=record(
            "backendRef",
            backendRef=_backend(),
            percent=integer(min=0, max=100),
            fraction=record("numerator", numerator=integer(), denominator=integer(default=100)),
        ),
        requestRedirect=record(
            scheme=choice("http", "https"),
            hostname=string(min=1, max=253, pattern=HOSTNAME.replace(r"(\*\.)?", "")),
            path=_PATH_MODIFIER,
            port=_port(),
            statusCode=integer(enum=[301, 302, 303, 307, 308], default=302),
        ),
        urlRewrite=record(
            hostname=string(min=1, max=253, pattern=HOSTNAME.replace(r"(\*\.)?", "")),
            path=_PATH_MODIFIER,
        ),
        extensionRef=record("group kind name", group=_group(), kind=_kind(), name=_name()),
        cors=ANY,
        externalAuth=ANY,
    )


_MATCH = record(
    path=record(
        type=choice("Exact", "PathPrefix", "RegularExpression", default="PathPrefix"),
        value=string(max=1024, default="/"),
    )
    | {"default": {"type": "PathPrefix", "value": "/"}},
    headers=array(
        record(
            "name value",
            type=choice("Exact", "RegularExpression", default="Exact"),
            name=string(min=1, max=256, pattern=HEADER),
            value=string(min=1, max=4096),
        ),
        key=("name",),
        max=16,
    ),
    queryParams=array(
        record(
            "name value",
            type=choice("Exact", "RegularExpression", default="Exact"),
            name=string(min=1, max=256, pattern=HEADER),
            value=string(min=1, max=1024),
        ),
        key=("name",),
        max=16,
    ),
    method=choice(*METHODS),
)

_RULE = record(
    name=_section(),
    matches=array(_MATCH, max=64) | {"default": [{"path": {"type": "PathPrefix", "value": "/"}}]},
    filters=array(_filter(), max=16),
    backendRefs=array(
        _backend(weight=integer(min=0, max=1000000, default=1), filters=array(_filter(), max=16)),
        max=16,
    ),
    timeouts=record(request=string(pattern=DURATION), backendRequest=string(pattern=DURATION)),
    retry=record(
        codes=array(integer(min=400, max=599)), attempts=integer(), backoff=string(pattern=DURATION)
    ),
    sessionPersistence=ANY,
)

HTTP_ROUTE = record(
    "spec",
    spec=record(
        parentRefs=array(_PARENT, max=32),
        useDefaultGateways=string(),
        hostnames=array(string(min=1, max=253, pattern=HOSTNAME), max=16),
        rules=array(_RULE, min=1, max=16)
        | {"default": [{"matches": [{"path": {"type": "PathPrefix", "value": "/"}}]}]},
    ),
    status=record(
        "parents",
        parents=array(
            record(
                "parentRef controllerName",
                parentRef=_PARENT,
                controllerName=string(),
                conditions=CONDITIONS,
            ),
            max=32,
        ),
    ),
)

REFERENCE_GRANT = record(
    spec=record(
        "from to",
        from_=array(
            record("group kind namespace", group=_group(), kind=_kind(), namespace=_namespace()),
            min=1,
            max=16,
        ),
        to=array(record("group kind", group=_group(), kind=_kind(), name=_name()), min=1, max=16),
    )
)

SNIPPETS_FILTER = record(
    "spec",
    spec=record(
        "snippets",
        snippets=array(
            record(
                "context value",
                context=choice("main", "http", "http.server", "http.server.location"),
                value=string(min=1),
            ),
            min=1,
            max=4,
        ),
    ),
    status=record(controllers=array(ANY)),
)

__all__ = ["GATEWAY", "GATEWAY_CLASS", "HTTP_ROUTE", "REFERENCE_GRANT", "SNIPPETS_FILTER"]
