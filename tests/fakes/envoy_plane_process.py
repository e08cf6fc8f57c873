"""A control plane of Envoys as a process of its own, to be killed.

Arguments: its directory, its port, and the JSON of ``[port, [host, port] of the backend]``.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

from fakes.agent_control_plane import GATEWAY, authenticate
from fakes.envoy_running import website
from gatehouse.transports.server import AgentServer


async def serve(directory: Path, port: int, listening: int, backend: tuple[str, int]) -> None:
    server = AgentServer(authenticate)
    server.envoys.publish(GATEWAY, website(listening, backend))
    await server.start(f"127.0.0.1:{port}", directory / "tls.crt", directory / "tls.key")
    await asyncio.Event().wait()


if __name__ == "__main__":
    listening, (host, backend_port) = json.loads(sys.argv[3])
    asyncio.run(serve(Path(sys.argv[1]), int(sys.argv[2]), listening, (host, backend_port)))
