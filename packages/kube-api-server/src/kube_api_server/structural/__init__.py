"""Structural schemas of custom resources, with the semantics of kube-apiserver.

- :mod:`schema_node`: compiled schemas; :mod:`compiled`: their public interface;
- :mod:`prune_default`: pruning and defaults;
- :mod:`validate`: validation of values, with :mod:`formats` and :mod:`formatting`;
  :mod:`list_uniqueness`: uniqueness in lists;
- :mod:`cel`, :mod:`cel_library`: CEL; :mod:`cel_validation`: evaluation of rules;
- :mod:`schema_validation`: validation of schemas; :mod:`declared`: fields known to rules.

Never here: storage, HTTP, and metadata of objects. No import either: provisioning uses schemas
without CEL.
"""
