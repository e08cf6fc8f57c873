"""Load balancers outside the cluster, synchronized with Services of the cluster.

- :mod:`loop`: main loop from changed objects to desired upstreams; idle until one is requested.
- :mod:`machines`: external machines that are configured in whole, over their agents.
- :mod:`balancer`: state of one load balancer, and which upstreams it owns. No I/O.
- :mod:`status_reporter`: statuses and Events, debounced.
- :mod:`metrics`: metrics of each host.

Never here: semantics of objects (front ends) and calls of the NGINX Plus API (transports).
"""

from gatehouse.controller.load_balancers.loop import LoadBalancers
from gatehouse.controller.load_balancers.machine_names import balancer_of, is_machine

__all__ = ["LoadBalancers", "balancer_of", "is_machine"]
