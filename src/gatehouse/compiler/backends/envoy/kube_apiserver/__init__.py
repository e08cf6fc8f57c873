"""Kube-apiservers behind an Envoy: ``Gateway.apis`` as resources.

Reading order: :mod:`plan` (which resources), :mod:`chains` (the port, and how clients are met),
:mod:`script` (what is understood of a request, and who asks), :mod:`policies` (what the script is
told), :mod:`routes` (the scope in which a request arrives, and those in which it goes on),
:mod:`upstreams` (servers), :mod:`flow` (how much), :mod:`replies` (what Envoy itself answers),
:mod:`socket` (where the reviewer asks), :mod:`logs`, :mod:`measures` (what is counted).

A request comes in on a scope of its port and cluster, whose only route answers 500. The script
says who asks, chooses a policy, and moves the request to the scope of a flow schema, where routes
lead to servers. So a script that fails lets nothing through; policies are data of the first
scope, and nothing else changes with them: no chain, no bucket, no connection.
"""
