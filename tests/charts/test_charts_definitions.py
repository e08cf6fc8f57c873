"""The definitions that Gatehouse brings along are what their scripts write."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BUNDLED = ROOT / "src" / "gatehouse" / "apiserver_extension" / "bundled"


@pytest.mark.parametrize("script", ["nginx_gateway", "gatehouse_dev", "kubegateway"])
def test_bundled_definitions_match_the_output_of_their_script(script: str, tmp_path: Path) -> None:
    # A change made by hand would be lost by the next one that is made by the script.
    words = [sys.executable, str(ROOT / "scripts" / f"{script}.py"), str(tmp_path)]
    subprocess.run(words, check=True)
    written = sorted(tmp_path.iterdir())
    assert written
    for path in written:
        assert (BUNDLED / path.name).read_text() == path.read_text(), path.name


@pytest.mark.parametrize("path", sorted(BUNDLED.iterdir()), ids=lambda path: str(path.stem))
def test_bundled_kind_has_a_description(path: Path) -> None:
    for version in json.loads(path.read_text())["spec"]["versions"]:
        assert version["schema"]["openAPIV3Schema"].get("description")
