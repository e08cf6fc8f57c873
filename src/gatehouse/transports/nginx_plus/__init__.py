"""Synchronizes upstreams of NGINX Plus hosts through their REST API.

- :mod:`~gatehouse.transports.nginx_plus.client`: REST client of one host.
- :mod:`~gatehouse.transports.nginx_plus.diff`: differences between desired and observed servers.
  No I/O.
- :mod:`~gatehouse.transports.nginx_plus.host_state`: observed state of a host and the schedule of
  its work. No I/O.
- :mod:`~gatehouse.transports.nginx_plus.executor`: executes a plan.
- :mod:`~gatehouse.transports.nginx_plus.worker`: control loop of one host.
- :mod:`~gatehouse.transports.nginx_plus.fleet`: all hosts of all load balancers.
- :mod:`~gatehouse.transports.nginx_plus.resolver`: DNS lookups in a thread per host.

Level-triggered: desired and observed state are compared on each change, when a host reconnects, and
periodically. In between, a host is trusted to hold the state that it confirmed, so a change costs
one request per affected server. Never here: Kubernetes, or upstreams that are not owned.
"""

from gatehouse.transports.nginx_plus.fleet import PlusFleet

__all__ = ["PlusFleet"]
