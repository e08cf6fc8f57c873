"""Back ends: IR to configuration of one kind of proxy. No I/O.

- :mod:`~gatehouse.compiler.backends.nginx`: file sets for NGINX.
- :mod:`~gatehouse.compiler.backends.envoy`: xDS resource sets for Envoy.
- :mod:`~gatehouse.compiler.backends.nginx_plus`: desired upstreams for the NGINX Plus API.
- :mod:`~gatehouse.compiler.backends.configuration`: queries that read the IR of a gateway.
- :mod:`~gatehouse.compiler.backends.fragments`: results of queries, and the set of all of them.
- :mod:`~gatehouse.compiler.backends.failures`: what an exception costs.
- :mod:`~gatehouse.compiler.backends.relying_parties`: authenticator configuration of OpenID
  Connect.
- :mod:`~gatehouse.compiler.backends.sessions`: what no proxy supports of session persistence.

A back end is a set of queries on the engine that front ends run on, too. Its query ``output``
returns everything that a gateway needs. It reports what its proxy does not support. Never here:
Kubernetes.
"""
