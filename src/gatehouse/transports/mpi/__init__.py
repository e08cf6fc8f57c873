"""Management plane of the NGINX Agent v3 protocol (MPI).

- :mod:`~gatehouse.transports.mpi.messages`: requests and responses as wire messages.
- :mod:`~gatehouse.transports.mpi.services`: the RPCs.

Never here: knowledge of file contents, or decisions about what to send and when; see
:mod:`gatehouse.transports.agents`. A new request of the protocol belongs in ``services``.
"""
