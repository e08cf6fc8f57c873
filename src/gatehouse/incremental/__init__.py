"""Incremental computation: the query engine and the data structures that it works on.

- ``query``: functions with cached results (``memo``) and recorded dependencies.
- ``snapshot``: immutable set of input objects. ``table``: persistent sorted map.
- ``grouping``: tables derived from other tables.

Nothing here knows Kubernetes, Gateway API or a proxy.
"""
