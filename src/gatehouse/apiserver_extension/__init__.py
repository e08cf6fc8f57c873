"""Additions of Gatehouse to the embedded API server, which by itself knows Kubernetes only.

:mod:`extension` lists them. :mod:`bundled` has the CRDs, :mod:`roles` the roles of components and
the rights of users. The others check writes beyond schemas: :mod:`name_conflicts` compares an
object with others, :mod:`gate_annotations` checks an annotation, :mod:`recorded_status` protects
statuses from which the controller reads its records, and :mod:`data_plane_writes` protects the
workloads of data planes.
In a cluster, the ValidatingAdmissionPolicies of the chart do what CEL can do of it. The controller
checks everything again, and reports it by conditions.
"""
