"""A tenant whose objects must be served unchanged, whatever other tenants write.

Its objects are the oldest: of two routes that exclude each other, the older one is served.
"""

from __future__ import annotations

from string import Template

_OBJECTS = Template("""
apiVersion: v1
kind: Namespace
metadata: {name: victim, labels: {kubernetes.io/metadata.name: victim}}
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: victim, namespace: victim, creationTimestamp: "2020-01-01T00:00:00Z"}
spec:
  parentRefs: [$gateway]
  hostnames: [victim.example]
  rules:
  - matches: [{path: {type: RegularExpression, value: "/v[0-9]+"}}]
    backendRefs: [{name: victim, port: 80}]
  - filters: [{type: RequestHeaderModifier, requestHeaderModifier: {set: [{name: X-V, value: v}]}}]
    backendRefs: [{name: victim, port: 80}]
---
apiVersion: gateway.networking.k8s.io/v1
kind: GRPCRoute
metadata: {name: victim-grpc, namespace: victim, creationTimestamp: "2020-01-01T00:00:00Z"}
spec:
  parentRefs: [$gateway]
  hostnames: [victim-grpc.example]
  rules: [{backendRefs: [{name: victim, port: 80}]}]
---
apiVersion: gateway.networking.k8s.io/v1
kind: TLSRoute
metadata: {name: victim, namespace: victim, creationTimestamp: "2020-01-01T00:00:00Z"}
spec:
  parentRefs: [$gateway]
  hostnames: [victim-tls.example]
  rules: [{backendRefs: [{name: victim, port: 80}]}]
---
apiVersion: gateway.networking.k8s.io/v1
kind: TCPRoute
metadata: {name: victim, namespace: victim, creationTimestamp: "2020-01-01T00:00:00Z"}
spec:
  parentRefs: [$gateway]
  rules: [{backendRefs: [{name: victim, port: 80}]}]
---
apiVersion: v1
kind: Service
metadata: {name: victim, namespace: victim, creationTimestamp: "2020-01-01T00:00:00Z"}
spec: {ports: [{port: 80}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: victim, namespace: victim, labels: {kubernetes.io/service-name: victim}}
addressType: IPv4
ports: [{port: 8080}]
endpoints: [{addresses: [192.0.2.1]}]
""")


def victim_of(gateway: str, namespace: str) -> str:
    """Return the victim's objects, with a route of each kind but UDP at a Gateway.

    The Gateway has listeners for HTTP, TLS and TCP. The victim's TCPRoute is the oldest, which its
    listener serves.
    """
    reference = f"{{name: {gateway}, namespace: {namespace}}}"
    return _OBJECTS.substitute(gateway=reference)
