"""Front ends: translate the objects of one API each to IR and findings. No I/O, no proxy specifics.

- :mod:`gateway_api`: Gateway API v1, with policies and filters of ``gateway.nginx.org``;
- :mod:`upstream_cluster`: KubeGateway's UpstreamClusters, attached to listeners of Gateways;
- :mod:`hosted_apiserver`: HostedAPIServers, attached likewise;
- :mod:`external_load_balancer`: ExternalLoadBalancers and ``nlk-config``, independent of Gateways;
- :mod:`combined`: Gateway API joined with the front ends that attach to its listeners;
- :mod:`kinds` and :mod:`front_end`: the records by which kinds and front ends plug in;
- :mod:`contribution`: additions of a front end to a Gateway;
- :mod:`inputs`: keys of inputs that the controller sets for all of them.

Each package exports a ``FRONT_END``, the record of its kinds with their queries over the snapshot
(:mod:`gatehouse.incremental.query`), which the controller evaluates.
"""
