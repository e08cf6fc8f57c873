"""What a particular NGINX can do, as far as its version tells."""

from __future__ import annotations

import re

import msgspec


class Capabilities(msgspec.Struct, frozen=True):
    """Of one binary."""

    version: tuple[int, int, int]

    @classmethod
    def parse(cls, text: str) -> Capabilities:
        """Read a version such as ``1.31.3``, ``nginx/1.22.1`` or ``1.27.2 (nginx-plus-r33)``.

        Text without a version counts as the oldest NGINX that is served, 1.22.0.
        """
        found = re.search(r"(\d+)\.(\d+)\.(\d+)", text)
        return cls((int(found[1]), int(found[2]), int(found[3])) if found else (1, 22, 0))

    @property
    def http2_directive(self) -> bool:
        """``http2 on``: HTTP/1.1 and HTTP/2 with prior knowledge on one plain port (1.25.1)."""
        return self.version >= (1, 25, 1)

    @property
    def http2_upstreams(self) -> bool:
        """``proxy_http_version 2`` (1.29.4)."""
        return self.version >= (1, 29, 4)

    @property
    def stream_servers(self) -> bool:
        """Virtual servers and ``pass`` in streams (1.25.5)."""
        return self.version >= (1, 25, 5)
