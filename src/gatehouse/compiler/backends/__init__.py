"""Back ends: IR to configuration of one kind of proxy. No I/O.

- :mod:`~gatehouse.compiler.backends.nginx`: file sets for NGINX.
- :mod:`~gatehouse.compiler.backends.envoy`: xDS resource sets for Envoy.
- :mod:`~gatehouse.compiler.backends.nginx_plus`: desired upstreams for the NGINX Plus API.
- :mod:`~gatehouse.compiler.backends.fragments`: fragments, regenerated only when their inputs
  change.
- :mod:`~gatehouse.compiler.backends.relying_parties`: authenticator configuration of OpenID
  Connect.

A back end reports what its proxy does not support. Never here: Kubernetes.
"""
