"""Role-based access control with Kubernetes' semantics: pure functions and one index in memory.

- :mod:`rules`: does a rule allow a request;
- :mod:`coverage`: do rules contain other rules, so that nobody grants what they do not hold;
- :mod:`authorizer`: roles and bindings by subject, decisions;
- :mod:`aggregation`: ClusterRoles made of other ClusterRoles;
- :mod:`validation`: what the four kinds may look like;
- :mod:`admission`: who may write them;
- :mod:`defaults`: the objects that a fresh server holds.

Objects are plain dicts as stored, and are never changed here. Never here: storage, HTTP, a clock.
"""
