"""Load balancers outside the cluster: what keeps them in step with its Services.

- :mod:`loop`: from changed objects to what hosts are to hold; asleep until somebody asks.
- :mod:`machines`: those that are ours in whole, whose agents come to us.
- :mod:`balancer`: one load balancer as it is now, and which upstreams are its own. Pure.
- :mod:`telling`: statuses and Events, a little later than everything else.
- :mod:`figures`: what can be measured of each host.
"""

from gatehouse.controller.load_balancers.loop import LoadBalancers
from gatehouse.controller.load_balancers.machines import is_machines

__all__ = ["LoadBalancers", "is_machines"]
