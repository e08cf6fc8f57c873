"""A controller whose expressions a real Envoy rejects, as one that is older than its Envoy has."""

from __future__ import annotations

import os
from pathlib import Path

from fakes.strict_nginx import REFUSED

_START_UP = f"""
import sys

if "controller" in sys.orig_argv:
    from gatehouse.compiler.backends.envoy import quoting

    checked = quoting.regex

    def regex(value, what="value"):
        matcher = checked(value, what)
        if {REFUSED!r} in value:
            matcher.regex = value + "("
        return matcher

    quoting.regex = regex
"""


def environment_with_strict_envoy(directory: Path) -> dict[str, str]:
    """Return the variables with which a controller writes expressions that Envoy rejects.

    These are the expressions with the text ``REFUSED``. Envoy rejects them after it has processed
    other resources. The code of the change is written into ``directory``.
    """
    (directory / "sitecustomize.py").write_text(_START_UP)
    return {"PYTHONPATH": f"{directory}:{os.environ.get('PYTHONPATH', '')}"}
