"""Admission of objects of Gatehouse's own kinds, beyond what schemas can check.

:mod:`name_conflicts` compares an object with others, :mod:`gate_annotations` checks an annotation,
and :mod:`recorded_status` protects statuses from which the controller reads its records.
In a cluster, the ValidatingAdmissionPolicies of the chart do what CEL can do of it. The controller
checks everything again, and reports it by conditions.
"""
