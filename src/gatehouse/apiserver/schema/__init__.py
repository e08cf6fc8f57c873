"""Schemas: what is valid, in plain dicts of OpenAPI's vocabulary, and the walker that applies them.

:mod:`shapes` builds them tersely, :mod:`core` and :mod:`gateway` hold them, :mod:`walker` defaults,
prunes and validates in one go, :mod:`rules` has what a schema cannot say.
"""
