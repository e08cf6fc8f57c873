"""One bare machine: everything that a cluster would otherwise provide.

:mod:`~gatehouse.standalone.pki` makes the certificates,
:mod:`~gatehouse.standalone.state_directory` knows
where everything lies, :mod:`~gatehouse.standalone.supervisor` runs the control plane's processes,
and :mod:`~gatehouse.standalone.node` is the kubelet and the load balancer of a one-machine cluster.
Never here: anything that differs between standalone and a cluster in what objects mean.
"""
