"""Pages without script: a title and a sentence."""

from __future__ import annotations

from html import escape

from aiohttp import web


def text_page(title: str, text: str, *, status: int = 200, forward_to: str = "") -> web.Response:
    """Return a page. ``forward_to``: path that the browser opens next."""
    refresh = (
        f'<meta http-equiv="refresh" content="0; url={escape(forward_to)}">' if forward_to else ""
    )
    page = (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8">{refresh}'
        f"<title>{escape(title)} - Gatehouse</title></head>"
        f"<body><main><h1>{escape(title)}</h1><p>{escape(text)}</p></main></body></html>"
    )
    return web.Response(text=page, status=status, content_type="text/html")
