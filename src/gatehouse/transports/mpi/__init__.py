"""NGINX Agent v3's protocol (MPI), as its management plane.

- :mod:`~gatehouse.transports.mpi.session`: what to tell one instance, and when. Pure.
- :mod:`~gatehouse.transports.mpi.publication`: the bundles of one gateway that may be fetched.
- :mod:`~gatehouse.transports.mpi.messages`: bundles and answers as wire messages.
- :mod:`~gatehouse.transports.mpi.authentication`: who a token belongs to, remembered shortly.
- :mod:`~gatehouse.transports.mpi.fleet`: all gateways, their sessions, and the reports.
- :mod:`~gatehouse.transports.mpi.certificates`: the server's certificate, renewed while serving.
- :mod:`~gatehouse.transports.mpi.services`: the RPCs.
- :mod:`~gatehouse.transports.mpi.server`: the server, and what the controller sees.

Never here: what is in a file, and identities taken from what a client says of itself. A new request
of the protocol goes to ``services``; a new decision about an instance to ``session``.
"""
