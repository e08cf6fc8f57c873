"""Build hook: compile ``proto/`` into ``src/kube_api_server/wire`` with grpcio-tools.

The generated modules are build products: never edited, never committed.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


def compile_wire(root: Path) -> None:
    """Generate Python modules for every ``.proto`` under ``root/proto``. None imports another."""
    from grpc_tools import protoc

    protos, out = root / "proto", root / "src" / "kube_api_server" / "wire"
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    sources = sorted(str(path.relative_to(protos)) for path in protos.rglob("*.proto"))
    if status := protoc.main(
        ["protoc", f"-I{protos}", f"--python_out={out}", f"--pyi_out={out}", *sources]
    ):
        raise RuntimeError(f"protoc failed with status {status}")
    for directory in (out, *(path for path in out.rglob("*") if path.is_dir())):
        text = '"""Wire definitions, generated from ``proto/`` at build time. Do not edit."""\n'
        (directory / "__init__.py").write_text(text, encoding="utf-8")


class WireBuildHook(BuildHookInterface[Any]):
    """Runs :func:`compile_wire` before a wheel or an editable install is made."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:  # noqa: ARG002
        """Compile the wire definitions into the source tree."""
        compile_wire(Path(self.root))
