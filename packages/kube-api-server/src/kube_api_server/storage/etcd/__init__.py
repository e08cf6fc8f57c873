"""Storage engine for several servers: etcd, v3 protocol.

:mod:`address` parses addresses, :mod:`client` is the protocol client, :mod:`store` stores objects,
and :mod:`backup` reads and writes them for backups. Never here: the meaning of objects.
"""
