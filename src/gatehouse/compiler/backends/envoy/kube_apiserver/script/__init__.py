"""The script, in Envoy, of every port in front of kube-apiservers; one text for all of them.

Its parts stand beside this file, in the order in which they are read. What is of a cluster comes
as metadata of the virtual host (:mod:`..policies`), so that users, tokens and decisions that a
worker knows outlive every change of policies.
"""

from __future__ import annotations

from importlib import resources


def _read() -> str:
    """Read all parts. What is for people stays behind: every chain has a copy of the text."""
    found = (each for each in resources.files(__name__).iterdir() if each.name.endswith(".lua"))
    parts = (each.read_text() for each in sorted(found, key=lambda each: each.name))
    lines = (line.strip() for part in parts for line in part.splitlines())
    return "\n".join(line for line in lines if line and not line.startswith("--"))


TEXT = _read()
"""The whole script."""
