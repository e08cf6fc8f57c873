"""Embedded Kubernetes API server, compatible with kubectl and client libraries.

Packages, in the order in which a request passes them:

- :mod:`main`: process set-up and graceful shutdown;
- :mod:`http`: requests, responses, watches, tables, discovery, OpenAPI, metrics, audit log;
- :mod:`identity`: authentication; :mod:`rbac`: authorization;
- :mod:`objects`: verbs on plain dicts, admission, deletion, CRDs, served resources;
- :mod:`structural`: structural schemas: pruning, defaults, validation, CEL rules;
- :mod:`builtin`: built-in kinds of Kubernetes; :mod:`extension`: what an installation adds;
- :mod:`admission_policies`: ValidatingAdmissionPolicies; :mod:`fields`: managed fields and
  server-side apply;
- :mod:`storage`: current state and recent history in memory, over SQLite or etcd;
- :mod:`controllers`: namespaces, garbage collection, Services, Deployments and others;
- :mod:`errors`: failures as Status objects;
- :mod:`testing`: a server in the tests of other programs.

Patches, types of built-in kinds and other types are in :mod:`kube_base`. A new built-in kind is a
line in :mod:`builtin.kinds`. Never here: what an object means to a client, and
names of programs that embed the server: those are in an :mod:`extension`.
"""

__version__ = "0.1.0"
