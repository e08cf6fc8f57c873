"""The node of a one-machine cluster: kubelet, kube-proxy and load balancer in one process.

:mod:`~gatehouse.standalone.node.load_balancer_ips` and :mod:`~gatehouse.standalone.node.pods`
decide,
:mod:`~gatehouse.standalone.node.volumes` puts files where containers look for them,
:mod:`~gatehouse.standalone.node.runner` keeps one Pod's process running,
:mod:`~gatehouse.standalone.node.probes` asks it how it is, and
:mod:`~gatehouse.standalone.node.node` watches objects and connects them: it runs the data planes
that have their Service's address as their own. All other Pods are those of
:mod:`~gatehouse.standalone.node.user_pods`, if an image stands for them, each in a network of
:mod:`~gatehouse.standalone.node.pod_networks`; :mod:`~gatehouse.standalone.node.service_proxy`
leads
Services to them. This is no general container runtime.
"""
