"""Tests of programs for Kubernetes, without a cluster: `pytest examples/api-server`."""

pytest_plugins = ["kube_api_server.testing.pytest_plugin"]
