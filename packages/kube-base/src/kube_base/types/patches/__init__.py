"""Patches. :mod:`json` has JSON patch and JSON merge patch, :mod:`strategic` strategic merge patch,
:mod:`errors` the reasons for which a patch cannot be applied.
Server-side apply is in :mod:`kube_api_server.fields`. Never here: storage, HTTP.
"""
