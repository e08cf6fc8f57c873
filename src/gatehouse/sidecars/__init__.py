"""Sidecars: helper processes that an agent runs beside its proxy, in the same container.

- :mod:`~gatehouse.sidecars.base`: life cycle and control protocol of every sidecar.
- :mod:`~gatehouse.sidecars.tls_connector`: TLS origination with checks of subject names.
- :mod:`~gatehouse.sidecars.authenticator`: OpenID Connect logins and basic authentication.
- :mod:`~gatehouse.sidecars.picker`: endpoint pickers of InferencePools.
- :mod:`~gatehouse.sidecars.reviewer`: TokenReviews and SubjectAccessReviews for kube-apiservers.

A sidecar imports nothing of the agent that starts it. ``config`` of each sidecar is the schema of
the JSON that the control plane writes for it.
"""
