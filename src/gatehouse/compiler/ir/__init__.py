"""The intermediate representation (IR): proxy-neutral configuration. Frozen data, no I/O.

- :mod:`~gatehouse.compiler.ir.gateway`: listeners, TLS, L4 and PROXY protocol ports of a gateway.
- :mod:`~gatehouse.compiler.ir.http`: matches, filters, actions, routes, virtual hosts, clusters.
- :mod:`~gatehouse.compiler.ir.sessions`: session persistence that policies set.
- :mod:`~gatehouse.compiler.ir.grpc_status`: statuses of gRPC for statuses of HTTP.
- :mod:`~gatehouse.compiler.ir.authentication`: basic authentication, JWT, OpenID Connect.
- :mod:`~gatehouse.compiler.ir.settings`: traffic settings of policies and data planes.
- :mod:`~gatehouse.compiler.ir.kube_apiserver`: kube-apiservers behind a gateway.
- :mod:`~gatehouse.compiler.ir.load_balancing`: external load balancers.

A new product feature starts here. Every back end must be able to express all of the IR, and reports
what its proxy does not support. Never here: Kubernetes, or anything of one proxy.

Structs are compared by value and shared by identity. An unchanged virtual host is the same object
in the next pass: back ends use this to skip what need not be generated again.
"""
