"""Changes of the status, for `gatehouse status --watch`: by watches, not by repeated lists."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Protocol

from gatehouse.apis.resources import PODS
from gatehouse.cli.errors import CLIError
from gatehouse.inspection.data_plane_metrics import MetricsPage, MetricsReader
from gatehouse.inspection.object_set import DATA_PLANE_SELECTOR, REPORTED_RESOURCES, ObjectSet
from gatehouse.kube import client as kube
from gatehouse.kube.informer import Informer
from kube_base.types.objects import Object

_DEBOUNCE_SECONDS = 0.2
"""Quiet period in seconds after a change. One apply changes several objects."""

METRICS_SECONDS = 10.0
"""Time in seconds after which the metrics of data planes are read again."""


class WatchedView(Protocol):
    """The text of a status."""

    def measured_pods(self, objects: ObjectSet) -> list[Object]:
        """Return the data planes whose metrics the text needs."""

    def text_of(self, objects: ObjectSet, pages: Sequence[MetricsPage]) -> str:
        """Return the text. Raises CLIError."""


async def watch_status(
    kubeconfig: Path,
    text: str,
    view: WatchedView,
    show: Callable[[str], None],
    *,
    whole: bool = False,
) -> None:
    """Call `show` with the changes of a text until cancelled.

    ``text``: the text that was shown last. ``whole``: show the complete text after a change.
    """
    changed = asyncio.Event()
    async with kube.Client.from_kubeconfig(kubeconfig) as client, asyncio.TaskGroup() as group:
        informers = [
            Informer(
                client,
                resource,
                on_changes=lambda *_: changed.set(),
                optional=True,
                max_forbidden=1,
                label_selector=DATA_PLANE_SELECTOR if resource is PODS else "",
            )
            for resource in (*REPORTED_RESOURCES, PODS)
        ]
        for informer in informers:
            group.create_task(informer.run())
        for informer in informers:
            await informer.synced.wait()
        reader = MetricsReader(client)
        while True:
            objects, pods = _object_set(informers), list[Object]()
            try:
                pods = view.measured_pods(objects)
                current = view.text_of(objects, await reader.read(pods))
            except CLIError as error:
                # A named object may be deleted, and created again.
                current = str(error)
            for line in [current] if whole else changed_lines(text, current):
                if current != text:
                    show(line)
            text = current
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(METRICS_SECONDS if pods else None):
                    await changed.wait()
            await asyncio.sleep(_DEBOUNCE_SECONDS)
            changed.clear()


def _object_set(informers: list[Informer]) -> ObjectSet:
    *others, pods = (list(informer.objects.values()) for informer in informers)
    return ObjectSet([item for items in others for item in items], pods, ())


def changed_lines(before: str, after: str) -> Iterator[str]:
    """Yield the lines that are not in the other text, with - or +. Alignment does not matter."""
    old, new = (
        Counter(" ".join(line.split()) for line in text.splitlines()) for text in (before, after)
    )
    yield from (f"- {line}" for line in (old - new).elements() if line)
    for line in after.splitlines():
        key = " ".join(line.split())
        if key and new[key] > old[key]:
            new[key] -= 1
            yield f"+ {line}"
