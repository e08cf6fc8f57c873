"""Structural schemas of custom resources, applied as a Kubernetes API server applies them.

:mod:`node` compiles a schema, :mod:`prepare` prunes and sets defaults, :mod:`validate` judges
values, :mod:`lists` their uniqueness, :mod:`rules` evaluates CEL, :mod:`definition` judges schemas.
"""

from __future__ import annotations

from gatehouse.apiserver.structural.compiled import Compiled, compile_schema

__all__ = ["Compiled", "compile_schema"]
