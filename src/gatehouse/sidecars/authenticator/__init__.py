"""Authenticator: sidecar for OpenID Connect logins and basic authentication.

NGINX sends it a subrequest for every request of a protected route (``auth_request``), and forwards
requests without a session, the provider's redirects and logouts. Envoy sends one request for all of
these (``ext_authz``). Sessions are stored only in encrypted cookies.

- ``config``: its configuration, a file of the file set, also used by the back end. No I/O.
- ``cookie_cipher``, ``cookies``, ``sessions``, ``claims``, ``urls``: values. No I/O.
- ``provider``: metadata, keys and token requests of an OpenID provider.
- ``id_tokens``: verification of ID tokens. No I/O.
- ``password_hashes``: verification of passwords. ``basic_auth``: basic authentication.
- ``request``: a proxy's description of a request.
- ``relying_party``: handling of requests for one filter. ``server``: dispatch over a socket.

Life cycle and control protocol are in :mod:`gatehouse.sidecars.base`. Never here: anything of the
agent, or of Kubernetes.
"""
