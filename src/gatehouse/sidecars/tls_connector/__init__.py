"""The connector: a process beside NGINX that speaks TLS to backends whose names NGINX cannot check.

NGINX checks a backend's certificate for the name that it sends in the handshake, and for no other.
Where a policy asks for other names, NGINX's upstream has a Unix socket per endpoint; the connector
listens there, opens TLS to the endpoint, checks the names, and carries bytes both ways.

- ``description``: what it is told, a file of the bundle. Pure; also what the back end writes.
- ``identity``: which certificates have which names. Pure.
- ``relay``: one connection. ``listening``: the sockets.

How it lives and is told what to do is :mod:`gatehouse.companion`.

Never here: TLS of our own (the standard library's is used), HTTP, or anything of the agent, which
starts it and outlives it or not: either may be replaced while the other goes on.
"""
