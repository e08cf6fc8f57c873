"""Serve the fake for trying things out: ``python -m nginx_plus 9000 http/web stream/db``."""

from __future__ import annotations

import asyncio
import sys

from fakes.nginx_plus import FakePlus, Plus, Upstream


async def main(port: int, names: list[str]) -> None:
    split = (name.split("/") for name in names)
    plus = Plus(*(Upstream(kind, name, zone=name) for kind, name in split))
    async with FakePlus(plus).serving(port=port) as url:
        print(f"serving {url}", flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), sys.argv[2:]))
