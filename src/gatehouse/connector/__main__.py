"""``python -m gatehouse.connector DIRECTORY SECONDS``: where, and how long sockets linger."""

import sys
from pathlib import Path

import uvloop

from gatehouse.connector.main import run

uvloop.run(run(Path(sys.argv[1]), float(sys.argv[2])))
