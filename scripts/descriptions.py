"""Descriptions of the fields of ``gatehouse.dev``, as `kubectl explain` shows them.

A default of the schema is appended to the description. Other defaults are part of the text.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from gatehouse.apis.resource_limits import PARAMETER_LIMITS

_CORE = "Group of the object: empty for the core group. Default: empty."
_GRANTED = (
    "Namespace of the object. Another one needs a ReferenceGrant. Default: that of the field."
)
_REFERENCED = "Name of the Secret, in the namespace of the object."

EXTERNAL_LOAD_BALANCER = {
    "type": "Type of the load balancer. NginxPlus is configured by its API, others by an agent.",
    "bindAddress": "Address at which machines listen. Default: all addresses.",
    "listeners": "Listeners of the machines. Required for types Nginx and Envoy.",
    "listeners[].port": "Port on which machines listen.",
    "listeners[].protocol": "Protocol of the listener. TLS is forwarded without termination.",
    "listeners[].hostname": "Hostname that clients request, for HTTP and TLS. Default: any.",
    "listeners[].upstream": "Name of the upstream that receives the traffic. HTTP uses upstreams "
    "of the http context, other protocols those of the stream context.",
    "hosts": "Load balancers or machines to synchronize.",
    "hosts[].url": "URL of the API without version, such as https://10.1.1.4:9000/api.",
    "hosts[].name": "Name of a machine, the same as in the certificate of its agent.",
    "tls": "TLS settings of connections to the API, for type NginxPlus.",
    "tls.mode": "Verification of server certificates: Verify, or SkipVerify, which is not secure.",
    "tls.caCertificateRef": "Secret with the CA certificates of the API. Default: those of the "
    "system.",
    "tls.caCertificateRef.name": _REFERENCED,
    "tls.caCertificateRef.key": "Key in the Secret. Default: ca.crt, otherwise tls.crt.",
    "tls.clientCertificateRef.name": _REFERENCED,
    "tls.clientCertificateRef.key": "Not used: the keys are tls.crt and tls.key.",
    "tls.clientCertificateRef": "Secret with the client certificate. Default: none.",
    "tls.serverName": "Name that the server certificate must have. Default: the host of the URL.",
    "authorizationSecretRef": "Secret with the value of the Authorization header. Default: no "
    "header.",
    "authorizationSecretRef.name": _REFERENCED,
    "authorizationSecretRef.key": "Key in the Secret. Default: authorization.",
    "services": "Services whose ports become upstreams. All conditions must match.",
    "services.namespaces": "Namespaces of the Services. * is all. Default: that of the object.",
    "services.selector": "Labels of the Services. Default: all Services.",
    "services.annotation": "Annotation that the Services must have. Default: none.",
    "services.annotation.name": "Name of the annotation.",
    "services.annotation.value": "Value of the annotation. Default: any.",
    "services.portPrefix": "Prefix of the names of the ports that become upstreams.",
    "services.portNames": (
        "Ports that become upstreams: those with portPrefix, or (Context) those named"
        " http-<upstream> and stream-<upstream>."
    ),
    "services.loadBalancerServers": "Servers of Services of type LoadBalancer: NodePort is the "
    "node ports, Ingress the addresses in the status.",
    "nodes": "Nodes that are servers of node ports.",
    "nodes.selector": "Labels of the Nodes. Default: all Nodes.",
    "nodes.controlPlane": "Include Nodes of the control plane, also those with the label "
    "node.kubernetes.io/exclude-from-external-load-balancers.",
    "nodes.notReadyPolicy": "Treatment of Nodes that are not Ready: Keep, Drain (no new "
    "sessions) or Remove.",
    "nodes.unschedulablePolicy": "Treatment of cordoned Nodes: Keep, Drain (no new sessions) or "
    "Remove.",
    "nodes.onlyWithEndpoints": "Include only Nodes with an endpoint of the Service.",
    "parameters": "Parameters of every server of an NGINX Plus upstream.",
    "parameters.weight": "Weight of the server. Default of NGINX Plus: 1.",
    "parameters.maxConns": "Maximum number of connections to the server. Default of NGINX Plus: "
    "0, no limit.",
    "parameters.maxFails": "Number of failures after which the server is unavailable. Default of "
    "NGINX Plus: 1.",
    "parameters.failTimeout": "Duration in which failures are counted, such as 10s. Default of "
    "NGINX Plus: 10s.",
    "parameters.slowStart": "Duration in which the server recovers its weight, such as 30s. "
    "Default of NGINX Plus: 0s.",
    "drainSeconds": "Time in seconds for which a server is drained before it is removed. 0 removes "
    "it at once.",
    "whenEmpty": "Treatment of an upstream without servers: Keep the last servers, or Remove them.",
    "deletionPolicy": "Treatment of the servers of an upstream whose Service is deleted: Retain or "
    "Delete.",
    "resyncSeconds": "Interval in seconds between checks of a host.",
    "timeoutSeconds": "Timeout in seconds of a request to a host.",
}

HOSTED_API_SERVER = {
    "parentRefs": "Gateways to which the object attaches.",
    "parentRefs[].name": "Name of the Gateway.",
    "parentRefs[].namespace": "Namespace of the Gateway. Default: that of the object.",
    "parentRefs[].sectionName": "Listener of the Gateway. Default: all listeners that allow it.",
    "hosts": "Hostnames of the kube-apiserver, with at least one dot and without wildcards.",
    "service": "Service in front of the kube-apiserver's Pods.",
    "service.name": "Name of the Service.",
    "service.port": "Port of the Service.",
    "advertiseAddress": "IP address that the kube-apiserver advertises (--advertise-address). "
    "Default: none, hostnames only.",
    "advertisePort": "Port on the advertised address.",
    "allowedSources": "Client addresses and CIDRs that are allowed. Default: all.",
    "dns": "DNS records of the hostnames.",
    "dns.publish": "Create a DNSEndpoint of the hostnames for external-dns.",
    "dns.ttlSeconds": "TTL of the records in seconds.",
}

_SELECTOR = {
    "matchLabels": "Labels that must have these values.",
    "matchExpressions": "Label requirements, all of which must match.",
    "matchExpressions[].key": "Label key.",
    "matchExpressions[].operator": "Relation of the label to the values.",
    "matchExpressions[].values": "Values for operators In and NotIn.",
}


GATEWAY_PARAMETERS = {
    "resourceLimits": "Ceilings of what objects may claim of the data plane. In the parameters of "
    "a GatewayClass they override --resource-limits; in those of a Gateway they count only where "
    "they are lower.",
    **{
        f"resourceLimits.{name}": f"Ceiling, in {limit.unit}: {limit.subject}. "
        f"Default of --resource-limits: {limit.default}."
        for name, limit in PARAMETER_LIMITS.items()
    },
    "ipFamily": "IP families of the listeners and the Service: dual, ipv4 or ipv6. Default: "
    "dual for listeners, that of the cluster for the Service.",
    "pathNormalization": "Changes of request paths before routes are compared with them; backends "
    "get the same path. Full resolves dot segments, merges slashes and decodes %2F. DotSegments "
    "leaves repeated and encoded slashes. Only for Envoy. Default: Full.",
    "disableHTTP2": "Do not offer HTTP/2 to clients. Default: false.",
    "disableSNIHostValidation": "Serve requests whose Host belongs to another listener than the "
    "server name of the TLS handshake, instead of the answer 421. Default: false.",
    "disableBaseHeaders": "Headers that are not set on requests to backends. * is all. Default: "
    "none.",
    "rewriteClientIP": "Source of the client address. Default: the address of the connection.",
    "rewriteClientIP.mode": "ProxyProtocol reads the PROXY header, XForwardedFor the header "
    "X-Forwarded-For.",
    "rewriteClientIP.setIPRecursively": "Use the last address of X-Forwarded-For that is not "
    "trusted, instead of the last address. Default: false.",
    "rewriteClientIP.trustedAddresses": "Proxies whose client addresses are believed.",
    "rewriteClientIP.trustedAddresses[].type": "CIDR or IPAddress. Hostname is not supported.",
    "rewriteClientIP.trustedAddresses[].value": "IP address or CIDR range.",
    "compression": "Compression of responses. Default: none. Envoy supports level, minLength and "
    "mimeTypes.",
    "compression.type": "Compression method. Must be gzip.",
    "compression.level": "Compression level, 1 (fastest) to 9 (smallest). Default: 1.",
    "compression.minLength": "Minimum length in bytes of a compressed response. Default: 20; "
    "Envoy compresses from 30.",
    "compression.mimeTypes": "MIME types of compressed responses. * is all. Default: text/html.",
    "compression.buffers": "Buffers of compressed data. Default: that of NGINX.",
    "compression.buffers.number": "Number of buffers.",
    "compression.buffers.size": "Size of a buffer in bytes, with k, m or g, such as 4k.",
    "compression.gzip": "Settings of gzip.",
    "compression.gzip.disable": "Regular expressions of User-Agent headers whose responses are "
    "not compressed. Default: none.",
    "compression.gzip.httpVersion": "Minimum HTTP version of requests whose responses are "
    "compressed. Default: 1.1.",
    "compression.gzip.proxied": "Conditions under which responses to proxied requests are "
    "compressed, as in NGINX's gzip_proxied. Default: off.",
    "compression.gzip.vary": "Add the header Vary: Accept-Encoding. Default: false.",
    "logging": "Logging of the agents and proxies.",
    "logging.accessLog": "Access log of requests and connections.",
    "logging.accessLog.disable": "Disables the log. Default: false.",
    "logging.accessLog.statusClasses": "Classes of statuses of requests that are logged. "
    "Default: all.",
    "logging.accessLog.samplePercent": "Share of requests that is logged. Default: 100.",
    "logging.accessLog.format": "Format of lines: JSON, or the same fields as name=value. "
    "Default: json.",
    "telemetry": "Traces of requests, by OTLP over gRPC to a collector.",
    "telemetry.disabledFeatures": "Disabled features. DisableTracing disables traces. Default: "
    "none.",
    "telemetry.exporter": "Export of spans. Default: none, and no request is traced.",
    "telemetry.exporter.endpoint": "Collector as host:port, or as https://host:port for "
    "TLS. Default port: 4317.",
    "telemetry.exporter.interval": "Maximum time between two exports, 100ms to 60s. Default: 5s.",
    "telemetry.exporter.batchSize": "Number of spans of an export, up to 8192. Default: 512.",
    "telemetry.exporter.batchCount": "Number of exports that may wait, up to 64. Further spans are "
    "dropped. Default: 4.",
    "telemetry.exporter.tls": "Credentials for an endpoint of https://. Default: CA "
    "certificates of the system, and no client certificate.",
    "telemetry.exporter.tls.caCertificateRefs": "ConfigMaps and Secrets with CA certificates in "
    "ca.crt, which verify the collector. Default: those of the system.",
    "telemetry.exporter.tls.caCertificateRefs[].group": _CORE,
    "telemetry.exporter.tls.caCertificateRefs[].kind": "Kind of the object.",
    "telemetry.exporter.tls.caCertificateRefs[].name": "Name of the object.",
    "telemetry.exporter.tls.caCertificateRefs[].namespace": _GRANTED,
    "telemetry.exporter.tls.clientCertificateRef": "Secret of type kubernetes.io/tls with the "
    "client certificate. Served by Envoy. Default: none.",
    "telemetry.exporter.tls.clientCertificateRef.group": _CORE,
    "telemetry.exporter.tls.clientCertificateRef.kind": "Kind of the object.",
    "telemetry.exporter.tls.clientCertificateRef.name": "Name of the object.",
    "telemetry.exporter.tls.clientCertificateRef.namespace": _GRANTED,
    "telemetry.serviceName": "End of service.name, after gatehouse:<namespace>:<Gateway>. "
    "Default: none.",
    "telemetry.spanAttributes": "Attributes of all spans.",
    "telemetry.spanAttributes[].key": "Name of the attribute.",
    "telemetry.spanAttributes[].value": "Value of the attribute.",
    "logging.agentLevel": "Lowest level that agents log. Default: info.",
    "kubernetes": "Kubernetes objects of the data plane.",
    "kubernetes.deployment": "Settings of the Deployment. Default workload.",
    "kubernetes.daemonSet": "Settings of a DaemonSet, which replaces the Deployment.",
    "kubernetes.deployment.replicas": "Number of Pods; with autoscaling the initial number. "
    "Default: 1, or minReplicas.",
    "kubernetes.deployment.autoscaling": "HorizontalPodAutoscaler of the Deployment.",
    "kubernetes.deployment.autoscaling.enable": "Create the HorizontalPodAutoscaler. Default: "
    "false.",
    "kubernetes.deployment.autoscaling.minReplicas": "Minimum number of Pods. Default: 1.",
    "kubernetes.deployment.autoscaling.maxReplicas": "Maximum number of Pods. Default: 1.",
    "kubernetes.deployment.autoscaling.targetCPUUtilizationPercentage": "Target CPU utilization "
    "in percent of the requests. Default: none.",
    "kubernetes.deployment.autoscaling.targetMemoryUtilizationPercentage": "Target memory "
    "utilization in percent of the requests. Default: none.",
    "kubernetes.deployment.autoscaling.metrics": "Further metrics, as in a "
    "HorizontalPodAutoscaler. Default: none.",
    "kubernetes.deployment.autoscaling.behavior": "Scaling behavior, as in a "
    "HorizontalPodAutoscaler. Default: that of Kubernetes.",
    "kubernetes.deployment.podDisruptionBudget": "PodDisruptionBudget of the Deployment. "
    "Default: none.",
    "kubernetes.deployment.podDisruptionBudget.minAvailable": "Minimum number or percentage of "
    "available Pods. Excludes maxUnavailable.",
    "kubernetes.deployment.podDisruptionBudget.maxUnavailable": "Maximum number or percentage of "
    "unavailable Pods. Excludes minAvailable.",
    "kubernetes.deployment.podDisruptionBudget.unhealthyPodEvictionPolicy": "Eviction of Pods "
    "that are not Ready: IfHealthyBudget or AlwaysAllow. Default: that of Kubernetes.",
    "kubernetes.service": "Service in front of the Pods.",
    "kubernetes.service.type": "Type of the Service. Default: LoadBalancer.",
    "kubernetes.service.externalTrafficPolicy": "Local preserves client addresses, Cluster uses "
    "all Nodes. Default: Local.",
    "kubernetes.service.loadBalancerIP": "Requested address of the load balancer. An address of "
    "the Gateway overrides it. Default: none.",
    "kubernetes.service.loadBalancerClass": "Class of the load balancer. Default: that of the "
    "cluster.",
    "kubernetes.service.loadBalancerSourceRanges": "CIDR ranges of clients that the load balancer "
    "accepts. Default: all.",
    "kubernetes.service.nodePorts": "Node ports of listeners. Default: assigned by Kubernetes.",
    "kubernetes.service.nodePorts[].port": "Port on the Nodes.",
    "kubernetes.service.nodePorts[].listenerPort": "Port of the listener.",
    "kubernetes.networkPolicy": "NetworkPolicy of the Pods. Fields that are not set have the "
    "values of the GatewayClass, then those of the installation.",
    "kubernetes.networkPolicy.enable": "Create a NetworkPolicy.",
    "kubernetes.networkPolicy.metricsFrom": "NetworkPolicyPeers that may read metrics. An empty "
    "list allows none. Default: Pods of the cluster.",
    "kubernetes.networkPolicy.egressTo": "NetworkPolicyPeers that the Pods may connect to, in "
    "addition to the control plane and DNS. Default: any.",
}

_WORKLOAD = {
    "pod": "Settings of the Pods.",
    "pod.terminationGracePeriodSeconds": "Time in seconds for a Pod to stop. Connections get 5 "
    "seconds less to finish. Default: 30.",
    "pod.affinity": "Affinity of the Pods, as in a Pod. Default: none.",
    "pod.nodeSelector": "Labels of the Nodes for the Pods. Default: any Node.",
    "pod.tolerations": "Tolerations of the Pods, as in a Pod. Default: none.",
    "pod.topologySpreadConstraints": "Spread of the Pods over Nodes and zones, as in a Pod. "
    "Default: none.",
    "pod.volumes": "Additional volumes, as in a Pod. Default: none.",
    "container": "Settings of the container with agent and proxy.",
    "container.image": "Image of the container. Default: that of the installation.",
    "container.image.repository": "Repository of the image.",
    "container.image.tag": "Tag of the image, optionally followed by @ and a digest.",
    "container.image.pullPolicy": "Pull policy of the image. Default: that of the installation.",
    "container.resources": "Requests and limits, as in a container. Default: requests of 50m CPU "
    "and 128Mi memory, no limits.",
    "container.lifecycle": "Hooks, as in a container. Default: none.",
    "container.readinessProbe": "Readiness probe of the container.",
    "container.readinessProbe.initialDelaySeconds": "Time in seconds before the first probe. "
    "Default: 0.",
    "container.readinessProbe.periodSeconds": "Time in seconds between probes. Default: 2.",
    "container.readinessProbe.port": "Port of the probe. Accepted and not served.",
    "container.readinessProbe.path": "Path of the probe. Accepted and not served.",
    "container.readinessProbe.expose": "Port of the probe in the Service. Accepted and not served.",
    "container.debug": "A debug build of NGINX. Accepted and not served.",
    "wafContainers": "Containers of F5 WAF for NGINX. Accepted and not served.",
    "container.hostPorts": "Ports of the Nodes that lead to ports of the container. Default: none.",
    "container.hostPorts[].port": "Port on the Node.",
    "container.hostPorts[].containerPort": "Port of the container, the port of a listener.",
    "container.volumeMounts": "Additional volume mounts, as in a container. Default: none.",
}

_PATCHES = {
    "patches": "Patches of the object, applied last and in this order. Default: none.",
    "patches[].type": "StrategicMerge, Merge (RFC 7386) or JSONPatch (RFC 6902).",
    "patches[].value": "An object, or a list of operations for JSONPatch.",
}

_CONDITIONS = "Conditions of the object: Accepted, Programmed and others."

STATUS = {
    "conditions": _CONDITIONS,
    "version": "Desired version of the servers.",
    "readyHosts": "Number of synchronized hosts and of all hosts, such as 2/3.",
    "hosts": "State of each host: version, server, API version and errors.",
    "upstreams": "Upstreams that the object owns, with their Services.",
}

HOSTED_STATUS = {
    "conditions": _CONDITIONS,
    "hosts": "Hostnames that are served.",
    "addresses": "Addresses of the Gateways, the DNS targets of the hostnames.",
    "readyEndpoints": "Number of ready endpoints of the Service.",
    "owned": "Names that the object owns. Other objects get one of them only when this object no "
    "longer requests it. Only the controller may write this field.",
    "owned.hosts": "Owned hostnames.",
    "owned.address": "Owned advertised address.",
    "owned.service": "Owned Service port, as name:port.",
}

TOP_LEVEL = {
    "kind": "Kind of the object.",
    "spec": "Desired state, written by users.",
    "status": "Observed state, written by the controller.",
}


KINDS = {
    "AuthenticationFilter": "Filter of rules that admits only authenticated requests.",
    "ClientSettingsPolicy": "Limits and timeouts of clients of a Gateway or route.",
    "ExternalLoadBalancer": "Load balancer outside the cluster, with its hosts and upstreams.",
    "GatewayParameters": "Parameters of the data plane of a Gateway or GatewayClass.",
    "HostedAPIServer": "Hosted kube-apiserver, with its hostnames and backends.",
    "InferencePool": "Pods that serve a model, as a backend of routes.",
    "NginxProxy": "Parameters of the NGINX data plane of a Gateway or GatewayClass.",
    "ObservabilityPolicy": "Tracing of the requests of routes.",
    "PayloadProcessor": "Processing of payloads, which Gatehouse does not support.",
    "ProxySettingsPolicy": "Buffers and timeouts of requests to backends.",
    "RateLimitCondition": "Limits of an UpstreamCluster that one instance uses now.",
    "RateLimitPolicy": "Limits of the request rate of a Gateway or route.",
    "SecurityPolicy": "Checks of the requests to a Gateway or route.",
    "SnippetsPolicy": "Raw NGINX configuration of a Gateway.",
    "TrafficPolicy": "Limits, timeouts and load balancing of a Gateway, route or Service.",
    "UpstreamCluster": "Upstream kube-apiserver, with its servers, limits and policies.",
    "UpstreamSettingsPolicy": "Connections and load balancing of Services as backends.",
    "WAFPolicy": "Web application firewall, which Gatehouse does not support.",
}


def _common(path: str) -> str:
    """Return the description of a field that several objects have. Raises KeyError."""
    head, _, rest = path.partition("patches")
    if head.startswith("kubernetes."):
        workload = path.split(".", 2)[2]
        return _PATCHES[f"patches{rest}"] if workload.startswith("patches") else _WORKLOAD[workload]
    if (text := _SELECTOR.get(path.partition("selector.")[2])) is None:
        raise KeyError(f"{path} has no description")
    return text


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
            yield (
                key,
                {
                    name: _field(field_schema, texts, path, name)
                    for name, field_schema in value.items()
                },
            )
        elif key != "description" or not path.endswith("[]"):
            yield key, value


def _field(
    schema: Mapping[str, Any], texts: Mapping[str, str], parent: str, name: str
) -> dict[str, Any]:
    path = f"{parent}.{name}".lstrip(".")
    own = texts.get(path) or schema.get("description") or _common(path)
    text = f"{own}{_default(schema)}"
    return {**described(schema, texts, path), "description": text}


def _default(schema: Mapping[str, Any]) -> str:
    default = schema.get("default")
    if default in (None, "", {}):
        return ""
    return f" Default: {str(default).lower() if isinstance(default, bool) else default}."


def top_level(kind: str, schema: Mapping[str, Any], version: str) -> dict[str, Any]:
    """Return the schema of an object with descriptions of itself and its top-level fields.

    ``version``: group and version. A kind that is not in :data:`KINDS` has its description on
    ``spec``.
    """
    texts = {**TOP_LEVEL, "apiVersion": f"Version of the API: {version}."}
    # Kubernetes forbids a description of metadata.
    properties = {
        name: field_schema if name == "metadata" else {**field_schema, "description": texts[name]}
        for name, field_schema in schema["properties"].items()
    }
    described_kind = KINDS.get(kind) or schema["properties"]["spec"]["description"]
    return {"description": described_kind, **schema, "properties": properties}
