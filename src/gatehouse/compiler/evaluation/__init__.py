"""Evaluation of single requests on the IR, and the explanation of the result.

:mod:`http_matching` and :mod:`l4_matching` decide on the IR alone, as both proxies do: differential
tests compare them with an oracle, NGINX and Envoy. :mod:`answers` derives the expected answer, and
:mod:`explaining` adds what the objects say about it. Never here: I/O.
"""
