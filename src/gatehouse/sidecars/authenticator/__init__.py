"""The authenticator: a process beside a proxy that knows users, above all those of providers.

NGINX asks it about every request of a guarded route (``auth_request``) and sends it those that
nobody may make yet, the provider's answers, and logouts. Envoy asks once for both (``ext_authz``).
Who is logged in is in sealed cookies, and nowhere else.

- ``description``: what it is told, a file of the bundle. Pure; also what the back end writes.
- ``sealing``, ``cookies``, ``sessions``, ``claims``, ``urls``: values. Pure.
- ``provider``: what a provider says of itself, its keys, and asking it for tokens.
- ``tokens``: what it says of users, and whether that holds. Pure.
- ``hashes``: of passwords, for a proxy that does not know them. ``realm``: asks for passwords.
- ``asked``: what a proxy says of a request.
- ``relying``: what becomes of a request, for one filter. ``serving``: for which, over a socket.

How it lives and is told what to do is :mod:`gatehouse.companion`. Never here: anything of the
agent, or of Kubernetes.
"""
