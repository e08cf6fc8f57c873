"""Core kinds, as far as Gatehouse relies on them; their other fields are kept as they are."""

from __future__ import annotations

from gatehouse.apiserver.schema.shapes import (
    ANY,
    DNS_LABEL,
    Schema,
    array,
    boolean,
    choice,
    integer,
    mapping,
    record,
    string,
)

_PORT = integer(min=1, max=65535)
_INT_OR_STRING: Schema = {"x-kubernetes-int-or-string": True}

NAMESPACE = record(
    spec=record(finalizers=array(string())), status=record(open_=True, phase=string())
)

SERVICE = record(
    spec=record(
        open_=True,
        type=choice("ClusterIP", "NodePort", "LoadBalancer", "ExternalName", default="ClusterIP"),
        selector=mapping(string()),
        ports=array(
            record(
                "port",
                name=string(pattern=DNS_LABEL, max=63),
                protocol=choice("TCP", "UDP", "SCTP", default="TCP"),
                port=_PORT,
                targetPort=_INT_OR_STRING,
                nodePort=integer(min=0, max=65535),
                appProtocol=string(),
            ),
            key=("port", "protocol"),
        ),
    ),
    status=record(
        open_=True,
        loadBalancer=record(ingress=array(record(open_=True, ip=string(), hostname=string()))),
    ),
)

ENDPOINT_SLICE = record(
    "addressType endpoints",
    addressType=choice("IPv4", "IPv6", "FQDN"),
    endpoints=array(
        record(
            "addresses",
            open_=True,
            addresses=array(string(), min=1, max=100),
            conditions=record(ready=boolean(), serving=boolean(), terminating=boolean()),
        ),
        max=1000,
    ),
    ports=array(
        record(
            name=string(default=""),
            protocol=choice("TCP", "UDP", "SCTP", default="TCP"),
            port=integer(min=0, max=65535),
            appProtocol=string(),
        ),
        max=100,
    ),
)

SECRET = record(
    type=string(default="Opaque"),
    data=mapping(string(pattern=r"^[A-Za-z0-9+/\s]*={0,2}\s*$")),
    stringData=mapping(string()),
    immutable=boolean(),
)

CONFIG_MAP = record(data=mapping(string()), binaryData=mapping(string()), immutable=boolean())

SERVICE_ACCOUNT = record(
    automountServiceAccountToken=boolean(), secrets=array(ANY), imagePullSecrets=array(ANY)
)

POD = record(
    "spec",
    spec=record(
        "containers",
        open_=True,
        containers=array(record("name", open_=True, name=string()), key=("name",), min=1),
        restartPolicy=choice("Always", "OnFailure", "Never", default="Always"),
    ),
    status=record(open_=True),
)

DEPLOYMENT = record(
    "spec",
    spec=record(
        "selector template",
        open_=True,
        replicas=integer(min=0, default=1),
        selector=record(open_=True, matchLabels=mapping(string())),
        template=record(open_=True, spec=record("containers", open_=True)),
    ),
    status=record(open_=True),
)

LEASE = record(spec=record(open_=True))
EVENT = record(open_=True)
