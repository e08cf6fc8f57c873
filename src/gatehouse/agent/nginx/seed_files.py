"""Seeds: initial servers of upstreams that resolve names, as files of a revision."""

from __future__ import annotations

from collections.abc import Mapping

from gatehouse.dataplane.endpoints import Endpoints

SEEDS = "seeds"
"""Directory of seeds in a revision, with one directory per upstream as NGINX includes it."""


def seed_files(seeds: Mapping[str, Endpoints]) -> dict[str, str]:
    """Return the content of the seed files by path."""
    return {
        f"{SEEDS}/{name}/servers.conf": "".join(
            f"server {endpoint.encoded} max_fails=0 weight={endpoint.weight};\n"
            for endpoint in servers
        )
        for name, servers in seeds.items()
    }
