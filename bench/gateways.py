"""Work of the controller for a change of one Gateway, among few and among many others.

The tests' whole controller (tests/fakes/gateway_estate.py): everything between a watch's events
and writes to the API server and agents, in one process without sockets; half of the Gateways are
NGINX's, half Envoy's, each with an agent, two listeners and two routes. Counted are the calls and
lines that the interpreter runs, which unlike time are nearly the same in every run.

    python bench/gateways.py --gateways 10,100,1000
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import sys
import tempfile
from pathlib import Path

import structlog

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from fakes.authority import Authority
from fakes.gateway_estate import ENVOY, NGINX, Estate, changes, memory_with

HELD = 50, 250
"""Gateways between which memory is compared."""


async def counted(gateways: int, directory: Path) -> dict[str, int]:
    """Return the steps of each change among this number of Gateways."""
    estate, result = Estate(Authority(directory)), {}
    async with estate.running(gateways):
        for kind in (NGINX, ENVOY):
            for what, _, change in changes(estate, kind):
                result[f"{what}, {kind}"] = await estate.steps_of(change)
    return result


def main() -> None:
    """Run as the arguments say."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gateways", default="10,100,1000")
    sizes = [int(size) for size in parser.parse_args().gateways.split(",")]
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    with tempfile.TemporaryDirectory(prefix="gatehouse-bench-") as path:
        directory = Path(path)
        rows = [asyncio.run(counted(size, directory)) for size in sizes]
        few, many = [asyncio.run(memory_with(size, Authority(directory))) for size in HELD]
    print(
        "| steps |", " | ".join(f"{size:,}" for size in sizes), "|\n| --- |", "---: | " * len(sizes)
    )
    for what in rows[0]:
        print(f"| {what} |", " | ".join(f"{row[what]:,}" for row in rows), "|")
    print(f"\n{(many - few) / (HELD[1] - HELD[0]) / 1024:.0f} KiB for each Gateway more")


if __name__ == "__main__":
    main()
