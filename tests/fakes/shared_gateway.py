"""A Gateway that tenants share: its listeners are open to all namespaces."""

from __future__ import annotations


def shared_gateway(namespace: str, class_name: str) -> str:
    """Return the YAML text of the Gateway ``gw`` with a listener of each kind of route."""
    everyone = "allowedRoutes: {namespaces: {from: All}}"
    return f"""
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {{name: gw, namespace: {namespace}}}
spec:
  gatewayClassName: {class_name}
  allowedListeners: {{namespaces: {{from: All}}}}
  listeners:
  - {{name: http, port: 8080, protocol: HTTP, {everyone}}}
  - {{name: tls, port: 9443, protocol: TLS, tls: {{mode: Passthrough}}, {everyone}}}
  - {{name: tcp, port: 9000, protocol: TCP, {everyone}}}
  - {{name: udp, port: 9001, protocol: UDP, {everyone}}}
"""
