"""TLS connector: sidecar of NGINX for TLS origination to backends whose names NGINX cannot check.

NGINX checks a backend's certificate only for the name that it sends in the handshake. If a policy
requires other names, NGINX's upstream has a Unix socket per endpoint. The connector listens there,
opens TLS to the endpoint, checks the names and relays bytes in both directions.

- ``config``: its configuration, a file of the file set, also used by the back end. No I/O.
- ``relay``: one connection. ``listeners``: the sockets.
- ``last_handshake``: a file per socket with the cause of a failure, for the access log.

Life cycle and control protocol are in :mod:`gatehouse.sidecars.base`.

Never here: a TLS implementation (the standard library's is used), HTTP, or anything of the agent.
Agent and connector can be replaced independently.
"""
