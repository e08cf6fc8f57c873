"""Transports: deliver file sets and resource sets to data planes and return their reports.

- :mod:`~gatehouse.transports.server`: the gRPC server of all agents on one port; implements
  :class:`gatehouse.dataplane.delivery.Delivery`.
- :mod:`~gatehouse.transports.agents`: shared by all protocols of NGINX agents: authentication,
  sessions, publications and reports.
- :mod:`~gatehouse.transports.mpi`: protocol of NGINX Agent v3 and of Gatehouse's own agent.
- :mod:`~gatehouse.transports.commander`: protocol of NGINX Agent v2.
- :mod:`~gatehouse.transports.xds`: ADS for Envoys and the relays in front of them.
- :mod:`~gatehouse.transports.nginx_plus`: REST API of NGINX Plus hosts.

Never here: Kubernetes objects, front ends, or knowledge of file contents. A new protocol is a new
package. If it serves NGINX agents, it builds on ``agents``.
"""

from gatehouse.runtime import tls_settings

# gRPC reads its environment at import, which follows.
tls_settings.require_tls_1_3_of_grpc()
