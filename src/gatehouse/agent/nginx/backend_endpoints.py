"""Endpoints of backends in the configuration that NGINX serves."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

import msgspec
import structlog

from gatehouse.agent import backend_gauges
from gatehouse.agent.backend_gauges import EndpointCounts
from gatehouse.agent.nginx.revision_store import RevisionStore
from gatehouse.dataplane.endpoints import parse_endpoints
from gatehouse.dataplane.upstream_label import UpstreamLabel, is_upstream_file, parse_label
from gatehouse.runtime.prometheus import Sample

log = structlog.get_logger("gatehouse.agent")

_SERVER = re.compile(rb"^ *server ", re.MULTILINE)


class RevisionEndpoints:
    """Endpoints of the upstreams of the current revision. Each file is read once."""

    def __init__(self, revisions: RevisionStore) -> None:
        self._revisions = revisions
        self._labels: dict[str, tuple[UpstreamLabel, int] | None] = {}
        """Label and number of servers, by digest."""
        self._counts: dict[str, int] = {}
        """Numbers of endpoints, by digest."""

    def samples(self, reported: Mapping[str, EndpointCounts] | None) -> list[Sample]:
        """Return the metrics of backends. Reads new files: call it in a thread.

        `reported`: endpoints by upstream, from the API of NGINX Plus. None: NGINX does not tell
        which endpoints are healthy.
        """
        try:
            return list(backend_gauges.backend_samples(self._backends(reported)))
        except (OSError, msgspec.DecodeError) as error:
            # The revision may be replaced meanwhile.
            log.debug("endpoints of backends unknown", error=str(error))
            return []

    def _backends(self, reported: Mapping[str, EndpointCounts] | None) -> dict[str, EndpointCounts]:
        """Return the endpoints by backend. Raises OSError or msgspec.DecodeError."""
        number = self._revisions.current()
        if number is None:
            return {}
        directory = self._revisions.directory(number)
        digests = {entry.path: entry.digest for entry in self._revisions.manifest(number).entries}
        self._read_labels(directory, digests)
        backends: dict[str, EndpointCounts] = {}
        counts: dict[str, int] = {}
        for path, upstream_digest in digests.items():
            if not (labelled := self._labels.get(upstream_digest)):
                continue
            label, known = labelled
            if digest := digests.get(label.endpoints):
                known = self._counts.get(digest, -1)
                if known < 0:
                    known = len(parse_endpoints((directory / label.endpoints).read_bytes()))
                counts[digest] = known
            own = EndpointCounts(known, None)
            if reported is not None:
                own = reported.get(PurePosixPath(path).stem, EndpointCounts(known, 0))
            backends[label.backend] = _most(own, backends.get(label.backend, own))
        self._counts = counts
        return backends

    def _read_labels(self, directory: Path, digests: dict[str, str]) -> None:
        """Read the upstream files that were not read before. Raises OSError."""
        labels: dict[str, tuple[UpstreamLabel, int] | None] = {}
        for path, digest in digests.items():
            if not is_upstream_file(path):
                continue
            if digest in self._labels:
                labels[digest] = self._labels[digest]
                continue
            content = (directory / path).read_bytes()
            label = parse_label(content)
            labels[digest] = (label, len(_SERVER.findall(content))) if label else None
        self._labels = labels


def _most(one: EndpointCounts, other: EndpointCounts) -> EndpointCounts:
    """Return the endpoints of two upstreams of one backend, which have the same endpoints."""
    healthy = None
    if one.healthy is not None and other.healthy is not None:
        healthy = max(one.healthy, other.healthy)
    return EndpointCounts(max(one.known, other.known), healthy)
