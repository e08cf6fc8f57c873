"""The node of a one-machine cluster: runs data planes and gives Services their addresses.

Not a container runtime: it runs no other Pods.

- :mod:`~gatehouse.standalone.node.node`: watches objects and runs data planes, which use the
  address of their Service themselves; :mod:`~gatehouse.standalone.node.trust` decides which.
- :mod:`~gatehouse.standalone.node.data_plane_users`: a user for each data plane.
- :mod:`~gatehouse.standalone.node.not_run`: statuses of objects that it does not run.
- :mod:`~gatehouse.standalone.node.load_balancer_ips`: addresses of Services of type LoadBalancer.
- :mod:`~gatehouse.standalone.node.pods`: Pods of workloads, environments and statuses. No I/O.
- :mod:`~gatehouse.standalone.node.runner`: keeps the process of one Pod running, with
  :mod:`~gatehouse.standalone.node.volumes`, :mod:`~gatehouse.standalone.node.probes` and the
  :mod:`~gatehouse.standalone.node.log_index`.
"""
