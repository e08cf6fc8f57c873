"""What a Gateway needs in its cluster: a ServiceAccount, a ConfigMap, a Service and a Deployment.

Here: their names (:mod:`~gatehouse.controller.provisioner.names`), their content as a pure
function of the
Gateway (:mod:`~gatehouse.controller.provisioner.manifests`,
:mod:`~gatehouse.controller.provisioner.pod`), and the only
I/O, making and removing them (:mod:`~gatehouse.controller.provisioner.reconcile`).

Never here: NGINX configuration, certificates' making, status. A new kind of object becomes a
function in ``manifests`` and an entry in ``reconcile.KINDS``; a new setting a field of
``ProvisionerSettings``.
"""
