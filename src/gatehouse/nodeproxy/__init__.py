"""Node proxy: the path from the Pods of a hosted cluster to its externally hosted kube-apiserver.

Pods connect to the addresses that their kube-apiserver advertises, which no machine of their
cluster has. On each node an interface gets these addresses. A local proxy (HAProxy, or NGINX's
stream module, or Envoy) accepts the connections and forwards them to the gateway of the hosting
cluster. A PROXY header or a CONNECT request names the original destination. TLS is passed through.

- ``options``: checked options.
- ``main``: start-up, reconciliation and shutdown.
- ``network_interface``, ``conntrack``: interface with the addresses, and rules that disable
  connection tracking. ``node_network``: both together.
- ``haproxy``, ``nginx``, ``envoy``: configurations. ``proxies``: selection.
  ``supervisor``: the process.
- ``socket_stats``, ``metrics``: kernel socket counts, and metrics.
- ``commands``: execution of commands.
- ``manifests``, ``coredns``: objects to install in the hosted cluster.

Never here: the control plane, the Kubernetes API, TLS termination.
"""
