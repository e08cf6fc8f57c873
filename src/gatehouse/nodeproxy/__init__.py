"""On each node of a hosted cluster: the way to a kube-apiserver that is hosted elsewhere.

Pods reach their kube-apiserver by the address that it advertises, which nothing in their cluster
has. Here an interface of the node gets that address, a local proxy (HAProxy, or NGINX's stream
module) takes the connections and sends them to the gateway of the hosting cluster, with a PROXY
header that says which address was wanted. TLS passes through.

Reading order: :mod:`options` (what is asked for), :mod:`links` (the address), :mod:`tracking` (no
connection tracking), :mod:`haproxy` and :mod:`nginx` (configurations), :mod:`supervision` (the
process), :mod:`life` (all of it, again and again), :mod:`manifests` and :mod:`names` (what a
cluster needs for it).

Never here: the control plane, Kubernetes' API, TLS.
"""
