"""Documents of this version as pages, so that links of problems work without a public site."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping
from functools import lru_cache
from html import escape
from itertools import pairwise
from pathlib import Path

from markdown_it import MarkdownIt
from markdown_it.token import Token

_PACKAGED = Path(__file__).parent / "documents"
"""Place of the documents in a wheel (hatch_build.py)."""

_CHECKOUT = Path(__file__).parents[3] / "docs"
"""Place of the documents in a checkout, whose installation is editable."""

_COMMENT = re.compile(r"^<!--.*?-->\n", re.DOTALL | re.MULTILINE)
_NO_SLUG = re.compile(r"[^\w\- ]")

_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{title} - Gatehouse</title>
<link rel="icon" href="/console/icon.svg"><link rel="stylesheet" href="/console/console.css">
</head><body>
<header><nav aria-label="Console"><a href="/console/">Console</a></nav></header>
<main class="page document" tabindex="0">{body}</main>
</body></html>
"""


def read_documents() -> Mapping[str, str]:
    """Return the text of all documents by path, such as ``tasks/console.md``."""
    directory = _PACKAGED if _PACKAGED.is_dir() else _CHECKOUT
    return {
        path.relative_to(directory).as_posix(): path.read_text(encoding="utf-8")
        for path in sorted(directory.rglob("*.md"))
    }


class Documents:
    """Documents by path. Each is rendered when it is first read."""

    def __init__(self, texts: Mapping[str, str]) -> None:
        self.texts = texts
        # HTML in a document is shown as text.
        self._parser = MarkdownIt("commonmark", {"html": False}).enable("table")
        self.page = lru_cache(maxsize=32)(self._page)

    def _page(self, path: str) -> str:
        """Return the page of a document, which exists."""
        tokens = self._parser.parse(_COMMENT.sub("", self.texts[path]))
        title = _add_anchors(tokens)
        for token in tokens:
            for child in token.children or ():
                if child.type == "link_open":
                    self._check_link(child, path)
        body = self._parser.renderer.render(tokens, self._parser.options, {})
        return _PAGE.format(title=escape(title), body=body)

    def _check_link(self, link: Token, path: str) -> None:
        """Remove the target of a link to a file that is no document."""
        target, _, _ = str(link.attrs.get("href", "")).partition("#")
        if not target or target.startswith(("https://", "http://")):
            return
        if posixpath.normpath(posixpath.join(posixpath.dirname(path), target)) not in self.texts:
            del link.attrs["href"]


def _add_anchors(tokens: list[Token]) -> str:
    """Add an ID to each heading, as GitHub does. Return the text of the first one."""
    known: dict[str, int] = {}
    title = ""
    for opening, content in pairwise(tokens):
        if opening.type != "heading_open":
            continue
        children = content.children or ()
        text = "".join(item.content for item in children if item.type in ("text", "code_inline"))
        slug = _NO_SLUG.sub("", text.lower()).replace(" ", "-")
        number = known[slug] = known.get(slug, -1) + 1
        opening.attrs["id"] = f"{slug}-{number}" if number else slug
        title = title or text
    return title
