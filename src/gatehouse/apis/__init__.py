"""The API groups that Gatehouse reads and serves.

:mod:`gatehouse.apis.resources` lists every resource once. :mod:`gatehouse.apis.meta` has the base
of all kinds, and :mod:`gatehouse.apis.selectors` label selectors. What every client of Kubernetes
could use is in :mod:`kube_base.types`. Each other module contains the typed, frozen kinds of one
group, with only the fields that the compiler reads. Decoding is tolerant. No I/O.
"""
