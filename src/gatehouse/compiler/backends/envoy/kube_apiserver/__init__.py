"""Kube-apiservers behind an Envoy: ``Gateway.apis`` as resources.

Reading order:
- :mod:`fragments`: which resources, regenerated when their inputs change.
- :mod:`filter_chains`: the port, and connections of clients.
- :mod:`script`: parses and authenticates requests; :mod:`policy_metadata`: its configuration.
- :mod:`routes`: the scope in which a request arrives, and those of flow schemas.
- :mod:`clusters`: the servers; :mod:`flow_control`: limits.
- :mod:`local_replies`: responses of Envoy itself.
- :mod:`internal_clusters`: the reviewer and the rate limit service.
- :mod:`access_log`, :mod:`stats`: access log and metrics.

A request arrives in a scope of its port and cluster, whose only route answers 500. The script
authenticates the user, chooses a policy, and moves the request to the scope of a flow schema, whose
routes lead to servers. So a script that fails permits nothing. Policies are data of the first
scope, and nothing else changes with them: no chain, no token bucket, no connection.
"""
