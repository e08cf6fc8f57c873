"""Built-in kinds of Kubernetes. :mod:`kube_base.types.builtin_types` has the table of their types.

- :mod:`protobuf`: decoding of request bodies with the field numbers of the table;
- :mod:`defaults`, :mod:`validation`, :mod:`network_policies`: defaults and checks that the table
  does not have;
- :mod:`columns`: columns of `kubectl get`; :mod:`events`: conversion between both Event APIs;
- :mod:`kinds`: the kinds that are served; :mod:`stored_kinds`: those that no controller acts on.

Never here: storage, HTTP.
"""
