"""Fixtures of the tests of the chart."""

from kube_apiserver import kube_apiserver

__all__ = ["kube_apiserver"]
