"""Kubernetes' built-in kinds: one table of their types, and everything that is read from it.

:mod:`types` reads the table, :mod:`schemas` makes schemas of it (validation, patches, OpenAPI),
:mod:`protobufs` reads request bodies with its field numbers, :mod:`limits` adds what the table does
not say, :mod:`kinds` lists what is served.
"""
