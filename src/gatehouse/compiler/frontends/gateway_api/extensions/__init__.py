"""Policies and filters of ``gateway.nginx.org``: what they ask for, and which of them stand.

:mod:`values` reads sizes, times and attributes; one module for each kind turns its object into the
IR's form, or says what is wrong with it; :mod:`standing` decides between policies about the same
object; :mod:`effective` gives what holds for a Gateway, a route, a Service.
"""
