"""Built-in kinds of Kubernetes: a table of their types, and code that uses it.

- :mod:`types`: parser of the table, `kinds.txt`; :mod:`schemas`: schemas made from it;
  :mod:`protobuf`: decoding of request bodies with its field numbers;
- :mod:`constraints`, :mod:`defaults`, :mod:`validation`, :mod:`network_policies`: ranges,
  defaults and checks that the table does not have;
- :mod:`columns`: columns of `kubectl get`; :mod:`events`: conversion between both Event APIs;
- :mod:`kinds`: the kinds that are served.

Never here: storage, HTTP.
"""
