"""The embedded API server: one that kubectl and client libraries take for a real one.

A request's way, and the packages it passes:

- :mod:`http`: paths, queries and bodies in; objects, lists, tables, streams and Status out;
- :mod:`identity`: who asks; :mod:`rbac`: whether they may;
- :mod:`objects`: the verbs on plain dicts, admission, deletion, what is served;
- :mod:`structural`: structural schemas: pruning, defaults, validation, rules in CEL;
- :mod:`builtin`: the kinds of Kubernetes; :mod:`bundled`: definitions that come along;
  :mod:`quantities`: how Kubernetes writes numbers such as ``500m``;
- :mod:`policies`: ValidatingAdmissionPolicies; :mod:`patches`; :mod:`fields`: who owns what;
- :mod:`storage`: the newest state and the recent past in memory, over SQLite or etcd;
- :mod:`controllers`: what a cluster's controllers do: namespaces, garbage, Services, Deployments;
- :mod:`serve`: the process.

A new built-in kind: a line in :mod:`builtin.kinds`. Never here: what an object means to Gatehouse,
and anything that imports the rest of it.
"""
