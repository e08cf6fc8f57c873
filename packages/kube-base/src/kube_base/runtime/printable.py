"""Text of other users, as a terminal or a line of a log may show it."""

from __future__ import annotations

import unicodedata

_CONTROLS = frozenset(("Cc", "Cf", "Cs", "Zl", "Zp"))
"""Unicode categories that are escaped: controls, directions, surrogates, separators of lines."""


def printable(text: str, keep: str = "") -> str:
    """Return a text whose control characters are escaped, as in a Python literal.

    ``keep``: control characters that stay.
    """
    rest = text
    for character in keep:
        rest = rest.replace(character, "")
    if rest.isprintable():
        return text
    return "".join(
        character
        if character in keep or unicodedata.category(character) not in _CONTROLS
        else character.encode("unicode_escape").decode()
        for character in text
    )
