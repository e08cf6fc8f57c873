"""What upstreams that follow names begin with, as files of a generation."""

from __future__ import annotations

from collections.abc import Mapping

from gatehouse.dataplane.endpoints import Endpoints

SEEDS = "seeds"
"""Where a generation has what upstreams begin with; one directory each, for NGINX looks for it."""


def seed_files(seeds: Mapping[str, Endpoints]) -> dict[str, str]:
    """Write what upstreams begin with, as they include it: the files by path."""
    return {
        f"{SEEDS}/{name}/servers.conf": "".join(
            f"server {endpoint.encoded} max_fails=0 weight={endpoint.weight};\n"
            for endpoint in found
        )
        for name, found in seeds.items()
    }
