"""Requests whose responses are compared between Gatehouse's API server and kube-apiserver.

`requests/*.yaml` is the table of requests, `objects.yaml` has their objects. `record.json` has the
facts of a kube-apiserver's responses, and :mod:`differences` those that may differ.
"""
