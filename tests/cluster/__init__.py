"""A real Kubernetes on one machine: `make cluster`, `make cluster-down` (as root).

Two nodes with containerd, a control plane, DNS and load balancers run in namespaces of their own
(process IDs, mounts, network, IPC, host name), so that nothing stays when they end.

- :mod:`~cluster.layout`: directories and addresses;
- :mod:`~cluster.binaries`: programs of Kubernetes and CoreDNS;
- :mod:`~cluster.certificates`: certificates and kubeconfigs;
- :mod:`~cluster.networks`: network namespaces, addresses and routes;
- :mod:`~cluster.nodes`, :mod:`~cluster.control_plane`: programs and their configuration;
- :mod:`~cluster.machine`: the first process of the namespaces, which runs the programs;
- :mod:`~cluster.load_balancers`: addresses of Services of type LoadBalancer;
- :mod:`~cluster.images`: images without a container engine;
- :mod:`~cluster.running`: start, stop and use from outside; :mod:`~cluster.__main__`: commands.
"""
