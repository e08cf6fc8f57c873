"""The OpenTelemetry Collector as a process, built by `make collector`."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from fakes import patience
from fakes.collectors import Collector, ReceivedSpan

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "tests" / "libraries" / "collector"

_ATTRIBUTE = re.compile(r" +-> (?P<key>.*?): Str\((?P<value>.*)\)")
_FIELD = re.compile(r"    (?P<key>Trace ID|Parent ID|ID|Name|Kind) +: ?(?P<value>.*)")


def executable() -> Path:
    """Return the path of the program for the current sources; it may not exist."""
    digest = hashlib.sha256()
    for name in ("go.mod", "go.sum", "main.go"):
        digest.update((SOURCE / name).read_bytes())
    return ROOT / ".cache" / "collector" / f"collector-{digest.hexdigest()[:16]}"


class CollectorProcess(Collector):
    """A running collector, which prints what it receives."""

    def __init__(self, port: int, output: Path) -> None:
        super().__init__(port)
        self._output = output

    async def refresh(self) -> None:
        self.spans = printed_spans(self._output.read_text())


@contextlib.asynccontextmanager
async def running_collector(
    directory: Path,
    port: int,
    certificate: tuple[Path, Path] | None = None,
    clients: Path | None = None,
) -> AsyncIterator[CollectorProcess]:
    """Run the collector on a port. ``certificate``: files for TLS, with the key. ``clients``: file
    of the CA certificates of clients, which need a certificate then."""
    configuration, output = directory / "collector.yaml", directory / "collector.log"
    pipeline = {"receivers": ["otlp"], "exporters": ["debug"]}
    endpoint: dict[str, Any] = {"endpoint": f"127.0.0.1:{port}"}
    if certificate is not None:
        chain, key = map(str, certificate)
        endpoint["tls"] = {"cert_file": chain, "key_file": key}
        if clients is not None:
            endpoint["tls"]["client_ca_file"] = str(clients)
    content = {
        "receivers": {"otlp": {"protocols": {"grpc": endpoint}}},
        "exporters": {"debug": {"verbosity": "detailed"}},
        "service": {
            "pipelines": {"traces": pipeline},
            "telemetry": {"metrics": {"level": "none"}},
        },
    }
    configuration.write_text(json.dumps(content))
    with output.open("wb") as file:
        process = await asyncio.create_subprocess_exec(
            str(executable()), "--config", f"file:{configuration}", stdout=file, stderr=file
        )
    try:
        async with patience.limit():
            while "Everything is ready" not in output.read_text():
                assert process.returncode is None, output.read_text()
                await patience.pause()
        yield CollectorProcess(port, output)
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


def printed_spans(text: str) -> list[ReceivedSpan]:
    """Return the spans in the output of the debug exporter, without an unfinished last one."""
    spans: list[ReceivedSpan] = []
    complete = text[: text.rfind("\t{")] if "\t{" in text else ""
    for group in complete.split("ResourceSpans #")[1:]:
        head, *parts = re.split(r"^Span #\d+$", group, flags=re.MULTILINE)
        resource = _attributes(head)
        for part in parts:
            fields = {match["key"]: match["value"].strip() for match in _FIELD.finditer(part)}
            spans.append(
                ReceivedSpan(
                    fields["Trace ID"],
                    fields["ID"],
                    fields["Parent ID"],
                    fields["Name"],
                    fields["Kind"].lower(),
                    _attributes(part),
                    resource,
                )
            )
    return spans


def _attributes(text: str) -> dict[str, str]:
    return {match["key"]: match["value"] for match in _ATTRIBUTE.finditer(text)}
