"""All resources that Gatehouse uses, by the names under which an API server serves them."""

from __future__ import annotations

from kube_base.types.resource import Resource

NAMESPACES = Resource("", "v1", "namespaces", "Namespace", namespaced=False)
SERVICES = Resource("", "v1", "services", "Service")
SECRETS = Resource("", "v1", "secrets", "Secret")
CONFIG_MAPS = Resource("", "v1", "configmaps", "ConfigMap")
SERVICE_ACCOUNTS = Resource("", "v1", "serviceaccounts", "ServiceAccount")
PODS = Resource("", "v1", "pods", "Pod")
EVENTS = Resource("", "v1", "events", "Event")
NODES = Resource("", "v1", "nodes", "Node", namespaced=False)
ENDPOINT_SLICES = Resource("discovery.k8s.io", "v1", "endpointslices", "EndpointSlice")
DEPLOYMENTS = Resource("apps", "v1", "deployments", "Deployment")
DAEMON_SETS = Resource("apps", "v1", "daemonsets", "DaemonSet")
JOBS = Resource("batch", "v1", "jobs", "Job")
AUTOSCALERS = Resource("autoscaling", "v2", "horizontalpodautoscalers", "HorizontalPodAutoscaler")
DISRUPTION_BUDGETS = Resource("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget")
NETWORK_POLICIES = Resource("networking.k8s.io", "v1", "networkpolicies", "NetworkPolicy")
DEFINITIONS = Resource(
    "apiextensions.k8s.io",
    "v1",
    "customresourcedefinitions",
    "CustomResourceDefinition",
    namespaced=False,
)
CLUSTER_TRUST_BUNDLES = Resource(
    "certificates.k8s.io", "v1", "clustertrustbundles", "ClusterTrustBundle", namespaced=False
)
LEASES = Resource("coordination.k8s.io", "v1", "leases", "Lease")
TOKEN_REVIEWS = Resource(
    "authentication.k8s.io", "v1", "tokenreviews", "TokenReview", namespaced=False
)
GATEWAY_CLASSES = Resource(
    "gateway.networking.k8s.io", "v1", "gatewayclasses", "GatewayClass", namespaced=False
)
GATEWAYS = Resource("gateway.networking.k8s.io", "v1", "gateways", "Gateway")
HTTP_ROUTES = Resource("gateway.networking.k8s.io", "v1", "httproutes", "HTTPRoute")
GRPC_ROUTES = Resource("gateway.networking.k8s.io", "v1", "grpcroutes", "GRPCRoute")
TLS_ROUTES = Resource("gateway.networking.k8s.io", "v1", "tlsroutes", "TLSRoute")
TCP_ROUTES = Resource("gateway.networking.k8s.io", "v1", "tcproutes", "TCPRoute")
UDP_ROUTES = Resource("gateway.networking.k8s.io", "v1", "udproutes", "UDPRoute")
LISTENER_SETS = Resource("gateway.networking.k8s.io", "v1", "listenersets", "ListenerSet")
BACKEND_TLS_POLICIES = Resource(
    "gateway.networking.k8s.io", "v1", "backendtlspolicies", "BackendTLSPolicy"
)
REFERENCE_GRANTS = Resource("gateway.networking.k8s.io", "v1", "referencegrants", "ReferenceGrant")
TELEMETRY_POLICIES = Resource(
    "gateway.networking.x-k8s.io", "v1alpha1", "xtelemetrypolicies", "XTelemetryPolicy"
)
MESHES = Resource("gateway.networking.x-k8s.io", "v1alpha1", "xmeshes", "XMesh", namespaced=False)
BACKEND_TRAFFIC_POLICIES = Resource(
    "gateway.networking.x-k8s.io", "v1alpha1", "xbackendtrafficpolicies", "XBackendTrafficPolicy"
)
X_BACKENDS = Resource("gateway.networking.x-k8s.io", "v1alpha1", "xbackends", "XBackend")
INFERENCE_POOLS = Resource("inference.networking.k8s.io", "v1", "inferencepools", "InferencePool")
_NGINX = "gateway.nginx.org"
CLIENT_SETTINGS_POLICIES = Resource(
    _NGINX, "v1alpha1", "clientsettingspolicies", "ClientSettingsPolicy"
)
PROXY_SETTINGS_POLICIES = Resource(
    _NGINX, "v1alpha1", "proxysettingspolicies", "ProxySettingsPolicy"
)
RATE_LIMIT_POLICIES = Resource(_NGINX, "v1alpha1", "ratelimitpolicies", "RateLimitPolicy")
UPSTREAM_SETTINGS_POLICIES = Resource(
    _NGINX, "v1alpha1", "upstreamsettingspolicies", "UpstreamSettingsPolicy"
)
OBSERVABILITY_POLICIES = Resource(
    _NGINX, "v1alpha2", "observabilitypolicies", "ObservabilityPolicy"
)
WAF_POLICIES = Resource(_NGINX, "v1alpha1", "wafpolicies", "WAFPolicy")
PAYLOAD_PROCESSORS = Resource(_NGINX, "v1alpha1", "payloadprocessors", "PayloadProcessor")
NGINX_PROXIES = Resource(_NGINX, "v1alpha2", "nginxproxies", "NginxProxy")
SNIPPETS_POLICIES = Resource(_NGINX, "v1alpha1", "snippetspolicies", "SnippetsPolicy")
EXTERNAL_LOAD_BALANCERS = Resource(
    "gatehouse.dev", "v1alpha1", "externalloadbalancers", "ExternalLoadBalancer"
)
GATEWAY_PARAMETERS = Resource("gatehouse.dev", "v1alpha1", "gatewayparameters", "GatewayParameters")
SECURITY_POLICIES = Resource("gatehouse.dev", "v1alpha1", "securitypolicies", "SecurityPolicy")
TRAFFIC_POLICIES = Resource("gatehouse.dev", "v1alpha1", "trafficpolicies", "TrafficPolicy")
UPSTREAM_CLUSTERS = Resource(
    "proxy.kubegateway.io", "v1alpha1", "upstreamclusters", "UpstreamCluster", namespaced=False
)
RATE_LIMIT_CONDITIONS = Resource(
    "proxy.kubegateway.io",
    "v1alpha1",
    "ratelimitconditions",
    "RateLimitCondition",
    namespaced=False,
)
HOSTED_API_SERVERS = Resource("gatehouse.dev", "v1alpha1", "hostedapiservers", "HostedAPIServer")
DNS_ENDPOINTS = Resource("externaldns.k8s.io", "v1alpha1", "dnsendpoints", "DNSEndpoint")
