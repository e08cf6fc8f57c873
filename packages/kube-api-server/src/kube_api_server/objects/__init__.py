"""Writes of objects and the resources that are served.

- :mod:`verbs`: create, update, patch, apply; :mod:`deletion`; :mod:`write_request`: their input;
- :mod:`admission`: pruning, defaults, validation, plug-ins; :mod:`metadata`: its common part;
- :mod:`served_resource`, :mod:`registry`: served resources; :mod:`crds`: those of CRDs;
- :mod:`jsonpath`, :mod:`timestamps`, :mod:`uids`: small helpers.

Never here: HTTP, and authorization.
"""
