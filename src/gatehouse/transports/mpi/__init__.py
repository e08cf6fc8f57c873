"""NGINX Agent v3's protocol (MPI), as its management plane.

- :mod:`~gatehouse.transports.mpi.messages`: bundles and answers as wire messages.
- :mod:`~gatehouse.transports.mpi.services`: the RPCs.

Never here: what is in a file, or when an instance is told what, which is
:mod:`gatehouse.transports.agents`. A new request of the protocol goes to ``services``.
"""
