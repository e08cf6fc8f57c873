"""Envoy's discovery protocol (xDS), as both ends of it need it: resources and conversations.

Pure: what is to be said, never how it gets there. The control plane's server and the relay in the
agent say it over gRPC; the back end makes the resources.
"""
