"""ValidatingAdmissionPolicies: CEL rules for writes.

https://kubernetes.io/docs/reference/access-authn-authz/validating-admission-policy

:mod:`policy` compiles a policy, :mod:`matching` selects requests, :mod:`enforcement` applies
stored policies to writes, and :mod:`type_checking` checks their types. Never here: HTTP.
"""
