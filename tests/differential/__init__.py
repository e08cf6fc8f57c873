"""Differential tests: NGINX and Envoy against an oracle of Gateway API semantics."""
