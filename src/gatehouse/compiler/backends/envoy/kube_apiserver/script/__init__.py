"""The Lua script of every port in front of kube-apiservers; one text for all of them.

The files beside this one are concatenated in the order of their names. Data of a cluster comes from
the metadata of the virtual host (:mod:`..policy_metadata`), so that users, tokens and decisions
that a worker has cached survive every change of policies.
"""

from __future__ import annotations

from importlib import resources


def _read() -> str:
    """Return all files without comments and indentation: every chain has a copy of the text."""
    files = (file for file in resources.files(__name__).iterdir() if file.name.endswith(".lua"))
    texts = (file.read_text() for file in sorted(files, key=lambda file: file.name))
    lines = (line.strip() for text in texts for line in text.splitlines())
    return "\n".join(line for line in lines if line and not line.startswith("--"))


TEXT = _read()
"""The whole script."""
