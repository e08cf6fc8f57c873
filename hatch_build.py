"""Build hook: compile ``proto/`` into ``src/gatehouse/wire`` with grpcio-tools, and add ``docs/``.

The generated modules are build products: never edited, never committed. A wheel has the documents,
which the console shows. An editable installation reads them from the checkout.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

CHARTER = '"""Wire definitions, generated from ``proto/`` at build time. Do not edit."""\n'


def compile_protos(root: Path) -> None:
    """Generate Python modules for every ``.proto`` under ``root/proto``.

    The generated absolute imports (``from mpi.v1 import …``) are moved under
    ``gatehouse.wire``, so that the protocol's own package names, which are part of
    the wire format, do not become top-level Python packages.
    """
    import grpc_tools
    from grpc_tools import protoc

    protos = root / "proto"
    out = root / "src" / "gatehouse" / "wire"
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    sources = sorted(str(path.relative_to(protos)) for path in protos.rglob("*.proto"))
    well_known = Path(grpc_tools.__file__).parent / "_proto"
    status = protoc.main(
        [
            "protoc",
            f"-I{protos}",
            f"-I{well_known}",
            f"--python_out={out}",
            f"--pyi_out={out}",
            *sources,
        ]
    )
    if status != 0:
        raise RuntimeError(f"protoc failed with status {status}")
    packages = {Path(source).parts[0] for source in sources}
    own_import = re.compile(rf"^(from|import) ({'|'.join(sorted(packages))})\b", re.MULTILINE)
    for generated in [*out.rglob("*.py"), *out.rglob("*.pyi")]:
        text = generated.read_text(encoding="utf-8")
        generated.write_text(own_import.sub(r"\1 gatehouse.wire.\2", text), encoding="utf-8")
    for directory in [out, *(path for path in out.rglob("*") if path.is_dir())]:
        (directory / "__init__.py").write_text(CHARTER, encoding="utf-8")


class ProtoBuildHook(BuildHookInterface[Any]):
    """Runs :func:`compile_protos` before a wheel or an editable install is made."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile the wire definitions into the source tree. Add the documents to a wheel.

        ``version``: ``standard``, or ``editable``.
        """
        compile_protos(Path(self.root))
        if version == "standard" and self.target_name == "wheel":
            build_data["force_include"]["docs"] = "gatehouse/console/documents"
