"""Tests of programs for Kubernetes, without a cluster: `pytest examples/api-server`."""

pytest_plugins = ["gatehouse.apiserver.testing.pytest_plugin"]
