"""Role-based access control with the semantics of Kubernetes.

- :mod:`rules`: whether a rule allows a request;
- :mod:`coverage`: whether rules contain other rules, for the prevention of privilege escalation;
- :mod:`authorizer`: decisions, with roles and bindings indexed by subject;
- :mod:`aggregation`: aggregated ClusterRoles;
- :mod:`validation`: validation of the four kinds;
- :mod:`escalation`: admission of writes to the four kinds;
- :mod:`role_objects`: roles and bindings as objects; :mod:`defaults`: those of a new server.

Pure functions, and one index in memory. Objects are plain dicts as stored, and are never changed
here. Never here: storage, HTTP, a clock.
"""
