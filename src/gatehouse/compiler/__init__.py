"""The compiler: Kubernetes objects to configuration of proxies. No I/O, no clock.

- :mod:`~gatehouse.compiler.frontends`: objects of one API to IR and findings.
- :mod:`~gatehouse.compiler.ir`: the proxy-neutral configuration of one Gateway.
- :mod:`~gatehouse.compiler.backends`: IR to configuration of one kind of proxy.

Equal snapshots always give identical bytes. Never here: delivery (:mod:`gatehouse.transports`) or
the control loop (:mod:`gatehouse.controller`).
"""
