"""ValidatingAdmissionPolicies: rules in CEL about what anybody may write.

https://kubernetes.io/docs/reference/access-authn-authz/validating-admission-policy
"""
