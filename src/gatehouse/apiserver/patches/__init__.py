"""Patches. :mod:`json` has JSON patch and JSON merge patch, :mod:`strategic` strategic merge patch.
Server-side apply is in :mod:`gatehouse.apiserver.fields`. Never here: storage, HTTP.
"""
