"""Foundation of API servers of Kubernetes and of their clients.

- :mod:`types`: objects, resources, quantities, patches and requests, without I/O;
- :mod:`runtime`: files, limits, queues and HTTP servers of a process.

Never here: an API server, a client, and what either is used for.
"""
