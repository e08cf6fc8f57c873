"""Transports: carry bundles to data planes and bring back what they report.

- :mod:`~gatehouse.transports.agents`: what every dialect of NGINX agents shares: who they are, what
  each is told and when, what is reported.
- :mod:`~gatehouse.transports.mpi`: the dialect of NGINX Agent v3, and of our own agent.
- :mod:`~gatehouse.transports.commander`: the dialect of NGINX Agent v2.
- :mod:`~gatehouse.transports.server`: both on one port; implements
  :class:`gatehouse.delivery.Delivery`.

Never here: Kubernetes objects, front ends, or knowledge of what is in a file. A new protocol is a
new package; if it speaks to agents beside NGINX, it is a dialect over ``agents``.
"""
