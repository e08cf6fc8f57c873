"""The engine for several servers: etcd, v3 protocol.

:mod:`address` reads where it is, :mod:`client` speaks to it, :mod:`store` keeps objects in it.
"""
