"""Front ends: translate the objects of one API each to IR and findings. No I/O, no proxy specifics.

- :mod:`gateway_api`: Gateway API v1, with policies and filters of ``gateway.nginx.org``;
- :mod:`upstream_cluster`: KubeGateway's UpstreamClusters (plug-in);
- :mod:`hosted_apiserver`: HostedAPIServers (plug-in);
- :mod:`external_load_balancer`: ExternalLoadBalancers and ``nlk-config``, independent of Gateways;
- :mod:`combined`: Gateway API joined with its plug-ins;
- :mod:`contribution`: what a plug-in adds to a Gateway.

Each front end names the kinds it reads and offers queries over the snapshot
(:mod:`gatehouse.incremental.query`), which the controller evaluates.
"""
