"""Transports: carry bundles to data planes and bring back what they report.

- :mod:`~gatehouse.transports.agents`: what every dialect of NGINX agents shares: who they are, what
  each is told and when, what is reported.
- :mod:`~gatehouse.transports.mpi`: the dialect of NGINX Agent v3, and of our own agent.
- :mod:`~gatehouse.transports.commander`: the dialect of NGINX Agent v2.
- :mod:`~gatehouse.transports.xds`: Envoys, and the relays in front of them.
- :mod:`~gatehouse.transports.server`: all on one port; implements
  :class:`gatehouse.delivery.Delivery`.
- :mod:`~gatehouse.transports.nginx_plus`: hosts with NGINX Plus, by their REST API.

Never here: Kubernetes objects, front ends, or knowledge of what is in a file. A new protocol is a
new package; if it speaks to agents beside NGINX, it is a dialect over ``agents``.
"""

import os

# The agents' channel speaks TLS 1.3 only. gRPC for Python has no option for that (its issue 37305)
# but this one, which lists the suites of TLS 1.2: one that needs a key shared beforehand, of which
# there is none, so that no handshake of 1.2 succeeds. It is read when grpc is imported.
os.environ["GRPC_SSL_CIPHER_SUITES"] = "ECDHE-PSK-CHACHA20-POLY1305"
