"""The API groups that Gatehouse reads and serves.

:mod:`gatehouse.apis.resources` lists every resource once. :mod:`gatehouse.apis.meta` has the base
of all kinds, :mod:`gatehouse.apis.selectors` label selectors, :mod:`kube_base.types.quantities`
numbers such as ``500m``, and :mod:`kube_base.types.request_info` requests to a kube-apiserver.
:mod:`kube_base.types.builtin_types` has schemas of Kubernetes' built-in types, and
:mod:`kube_base.types.patches` applies patches. Each other module contains the typed, frozen kinds of
one group, with only the fields that the compiler reads. Decoding is tolerant. No I/O.
"""
