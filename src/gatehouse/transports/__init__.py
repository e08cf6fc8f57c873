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

import os

# Agent connections use TLS 1.3 only. gRPC for Python has no option for that (its issue 37305)
# except this one, which lists the cipher suites of TLS 1.2. The suite below needs a pre-shared key.
# There is none, so every TLS 1.2 handshake fails. gRPC reads the variable at import.
os.environ["GRPC_SSL_CIPHER_SUITES"] = "ECDHE-PSK-CHACHA20-POLY1305"
