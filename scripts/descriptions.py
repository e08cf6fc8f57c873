"""Descriptions of the spec fields of ``gatehouse.dev``, as `kubectl explain` shows them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

_SECRET = {
    "name": "Name of the Secret.",
    "key": "Key in the Secret.",
}

EXTERNAL_LOAD_BALANCER = {
    "type": "Type of the load balancer. NginxPlus is configured by its API, others by an agent.",
    "bindAddress": "Address at which machines listen. Default: all addresses.",
    "listeners": "Listeners of the machines. Required for types Nginx and Envoy.",
    "listeners[].port": "Port on which machines listen.",
    "listeners[].protocol": "Protocol of the listener.",
    "listeners[].hostname": "Hostname that clients request, for HTTP and TLS. Default: any.",
    "listeners[].upstream": "Name of the upstream that receives the traffic. HTTP uses upstreams "
    "of the http context, other protocols those of the stream context.",
    "hosts": "Load balancers or machines to synchronize.",
    "hosts[].url": "URL of the API without version, such as https://10.1.1.4:9000/api.",
    "hosts[].name": "Name of a machine, the same as in the certificate of its agent.",
    "tls": "TLS settings of connections to the API.",
    "tls.mode": "Whether server certificates are verified.",
    "tls.caCertificateRef": "Secret with the CA certificates of the API.",
    "tls.clientCertificateRef": "Secret with the client certificate.",
    "tls.serverName": "Name that the server certificate must have. Default: the host of the URL.",
    "authorizationSecretRef": "Secret with the value of the Authorization header.",
    "services": "Services whose ports become upstreams.",
    "services.namespaces": "Namespaces of the Services. * is all. Default: that of the object.",
    "services.selector": "Labels of the Services. Default: all Services.",
    "services.annotation": "Annotation that the Services must have.",
    "services.annotation.name": "Name of the annotation.",
    "services.annotation.value": "Value of the annotation. Default: any.",
    "services.portPrefix": "Prefix of the names of the ports that become upstreams.",
    "services.loadBalancerServers": "Servers of Services of type LoadBalancer: node ports or the "
    "addresses of their ingress.",
    "nodes": "Nodes that are servers of node ports.",
    "nodes.selector": "Labels of the Nodes. Default: all Nodes.",
    "nodes.controlPlane": "Include Nodes of the control plane.",
    "nodes.notReadyPolicy": "Treatment of Nodes that are not Ready.",
    "nodes.unschedulablePolicy": "Treatment of cordoned Nodes.",
    "nodes.onlyWithEndpoints": "Include only Nodes with an endpoint of the Service.",
    "parameters": "Parameters of every server of an NGINX Plus upstream.",
    "parameters.weight": "Weight of the server.",
    "parameters.maxConns": "Maximum number of connections to the server.",
    "parameters.maxFails": "Number of failures after which the server is unavailable.",
    "parameters.failTimeout": "Time in which failures are counted.",
    "parameters.slowStart": "Time in which the server recovers its weight.",
    "drainSeconds": "Time in seconds for which a server is drained before it is removed.",
    "whenEmpty": "Whether an upstream without servers keeps the last ones.",
    "deletionPolicy": "Whether the servers of an upstream stay after its Service is deleted.",
    "resyncSeconds": "Interval in seconds between checks of a host.",
    "timeoutSeconds": "Timeout in seconds of a request to a host.",
}

HOSTED_API_SERVER = {
    "parentRefs": "Gateways to which the object attaches.",
    "parentRefs[].name": "Name of the Gateway.",
    "parentRefs[].namespace": "Namespace of the Gateway. Default: that of the object.",
    "parentRefs[].sectionName": "Listener of the Gateway. Default: all listeners that allow it.",
    "hosts": "Hostnames of the kube-apiserver, without wildcards.",
    "service": "Service in front of the kube-apiserver's Pods.",
    "service.name": "Name of the Service.",
    "service.port": "Port of the Service.",
    "advertiseAddress": "Address that the kube-apiserver advertises (--advertise-address).",
    "advertisePort": "Port on the advertised address.",
    "allowedSources": "Client addresses and CIDRs that are allowed. Default: all.",
    "dns": "DNS records of the hostnames.",
    "dns.publish": "Create a DNSEndpoint for external-dns.",
    "dns.ttlSeconds": "TTL of the records in seconds.",
}

_SELECTOR = {
    "matchLabels": "Labels that must have these values.",
    "matchExpressions": "Label requirements, all of which must match.",
    "matchExpressions[].key": "Label key.",
    "matchExpressions[].operator": "Relation of the label to the values.",
    "matchExpressions[].values": "Values for operators In and NotIn.",
}


def _common(path: str) -> str:
    """Return the description of a field of a Secret reference or a label selector."""
    head, _, rest = path.partition("Ref.")
    if rest and head:
        return _SECRET[rest]
    return _SELECTOR[path.partition("selector.")[2]]


def described(
    schema: Mapping[str, Any], texts: Mapping[str, str], path: str = ""
) -> dict[str, Any]:
    """Return `schema` with a description on every field. Raises KeyError if one is missing."""
    return dict(_described(schema, texts, path))


def _described(
    schema: Mapping[str, Any], texts: Mapping[str, str], path: str
) -> Iterator[tuple[str, Any]]:
    for key, value in schema.items():
        if key == "items":
            yield key, described(value, texts, f"{path}[]")
        elif key == "properties":
            yield key, {name: _field(each, texts, path, name) for name, each in value.items()}
        elif key != "description" or not path.endswith("[]"):
            yield key, value


def _field(
    schema: Mapping[str, Any], texts: Mapping[str, str], parent: str, name: str
) -> dict[str, Any]:
    path = f"{parent}.{name}".lstrip(".")
    text = texts.get(path) or _common(path)
    return {**described(schema, texts, path), "description": text}
