"""Transports: carry bundles to data planes and bring back what they report.

Here: one package per protocol, each implementing :class:`gatehouse.delivery.Delivery`; protocol
logic in pure classes, sockets around them. Never here: Kubernetes objects, front ends, or knowledge
of what is in a file. A new protocol is a new package beside ``mpi``.
"""
