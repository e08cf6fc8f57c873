"""The provisioner: Kubernetes objects of a Gateway's data plane.

- :mod:`~gatehouse.controller.provisioner.names`: names and labels of the objects.
- :mod:`~gatehouse.controller.provisioner.manifests`: the desired objects as a pure function of
  Gateway, plan and settings, with :mod:`~gatehouse.controller.provisioner.pod`,
  :mod:`~gatehouse.controller.provisioner.service`,
  :mod:`~gatehouse.controller.provisioner.autoscaling`,
  :mod:`~gatehouse.controller.provisioner.network_policy`,
  :mod:`~gatehouse.controller.provisioner.copied_secrets` and the users'
  :mod:`~gatehouse.controller.provisioner.patches`.
- :mod:`~gatehouse.controller.provisioner.owned_objects`: the existing objects by Gateway.
- :mod:`~gatehouse.controller.provisioner.reconcile`: creates, updates and deletes; the only I/O.

Never here: NGINX configuration, creation of certificates, status. A new kind of object is a
function in ``manifests`` and an entry in ``reconcile.OWNED_KINDS``; a new setting is a field of
``ProvisionerSettings``.
"""
