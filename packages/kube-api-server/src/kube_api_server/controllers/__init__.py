"""Controllers of the API server, each driven by the changes it needs.

- :mod:`context`, :mod:`reconcile_queue`: shared by all;
- :mod:`leader_election`: one server runs them;
- :mod:`bootstrap`: initial objects and key rotation; :mod:`definitions`,
  :mod:`definition_files`: CRDs of an extension;
- :mod:`initial_phase`: initial status;
- :mod:`namespaces`, :mod:`garbage_collector`, :mod:`custom_resources`,
  :mod:`new_defaults`, :mod:`rbac`;
- :mod:`endpoint_slices`, :mod:`endpoints`, :mod:`endpoints_mirroring`;
- :mod:`kubernetes_service`; :mod:`service_ips`;
- :mod:`disruption_budgets`, :mod:`resource_quotas`.

Never here: HTTP.
"""
