"""The node of a one-machine cluster: kubelet and load balancer in one process.

:mod:`~gatehouse.standalone.node.addresses` and :mod:`~gatehouse.standalone.node.pods` decide,
:mod:`~gatehouse.standalone.node.volumes` puts files where containers look for them,
:mod:`~gatehouse.standalone.node.runner` keeps one Pod's process running, and
:mod:`~gatehouse.standalone.node.node` watches objects and connects them. Only Deployments that
Gatehouse itself made are run: this is no general container runtime.
"""
