"""Programs of other projects for the tests, as compressed binaries.

``GATEHOUSE_PEERS`` names the directory with ``bin/<name>.xz``. The default is ``shared/peers`` or
``peers`` beside the checkout. Tests that need a program skip where it is missing.
"""

from __future__ import annotations

import lzma
import os
import shutil
import tempfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CACHE = ROOT / ".cache" / "peers"


def directory() -> Path | None:
    """Return the directory of the programs, or None if there is none."""
    named = os.environ.get("GATEHOUSE_PEERS")
    beside = (ROOT.parent / "shared" / "peers", ROOT.parent / "peers")
    candidates = (Path(named),) if named else beside
    return next((each for each in candidates if (each / "bin").is_dir()), None)


def binary(name: str, program: str) -> Path:
    """Return the path of an executable, decompressed once. Skips the test if there is none.

    The file is called ``program``: some executables contain several programs and run the one that
    they are called by.
    """
    result = directory()
    packed = result / "bin" / f"{name}.xz" if result else None
    if packed is None or not packed.exists():
        pytest.skip(f"no {name}: set GATEHOUSE_PEERS to a directory with bin/{name}.xz")
    unpacked = CACHE / name / program
    if not unpacked.exists() or unpacked.stat().st_mtime < packed.stat().st_mtime:
        _unpack(packed, unpacked)
    return unpacked


def _unpack(packed: Path, unpacked: Path) -> None:
    """Decompress a file. Another test process may do the same at the same time."""
    unpacked.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=unpacked.parent, delete=False) as staged:
        with lzma.open(packed) as source:
            shutil.copyfileobj(source, staged, 1 << 20)
        staged.close()
        Path(staged.name).chmod(0o755)
        Path(staged.name).rename(unpacked)
