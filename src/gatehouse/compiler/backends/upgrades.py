"""Upgrades of connections to other protocols, which are the same on all proxies."""

from __future__ import annotations

TUNNELS = ("websocket", "SPDY/3.1")
"""Tokens in ``Upgrade`` that reach backends, in any letter case. After the upgrade the proxy copies
bytes, so that no rule applies. SPDY/3.1 is kubectl's protocol for exec, attach and port-forward.
"""

STREAM_IDLE_SECONDS = 300.0
"""Default time in seconds after which a response, or an upgraded connection, without traffic ends.
"""
