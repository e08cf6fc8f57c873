"""Kubernetes' HTTP API over the objects: requests, representations, watches, discovery."""
