"""The API groups that Gatehouse reads and serves.

:mod:`gatehouse.apis.resources` lists every resource once. :mod:`gatehouse.apis.meta` has the base
of all kinds, :mod:`gatehouse.apis.selectors` label selectors, and
:mod:`gatehouse.apis.request_info` requests to a kube-apiserver. Each other module contains the
typed, frozen kinds of one group, with only the fields that the compiler reads. Decoding is
tolerant. No I/O.
"""
