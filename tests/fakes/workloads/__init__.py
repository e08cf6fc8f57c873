"""A node for Pods of tests: echo servers, controllers, and data planes behind a Service.

The node of `gatehouse up` runs data planes only. This one runs other Pods as processes, each in a
network namespace (as root), and forwards the addresses of Services to them. It is a process of its
own beside an API server: ``python -m fakes.workloads``.

- :mod:`~fakes.workloads.__main__`: the process.
- :mod:`~fakes.workloads.deployments`: creates and updates the Pods of Deployments.
- :mod:`~fakes.workloads.user_pods`: keeps Pods running, whose image is in
  :mod:`~fakes.workloads.images`, in a network of :mod:`~fakes.workloads.pod_networks`.
- :mod:`~fakes.workloads.service_proxy`: forwards addresses of Services with nftables.
- :mod:`~fakes.workloads.command`: starts and ends the process.
"""
