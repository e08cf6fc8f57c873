"""Objects that the garbage collector of a controller leaves out.

A full collection visits every object of the process and stops the controller meanwhile. Most of
them are inputs and results of compile passes, which are freed without the collector. The collector
leaves out what exists after the first pass, including garbage in cycles. So that garbage does not
stay, it visits everything once after half of the inputs are gone.
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator


class FrozenHeap:
    """Controls the garbage collector of this process, which must run one controller only."""

    def __init__(self) -> None:
        self._inputs = 0
        """Number of inputs when the heap was frozen; 0 if it is not frozen."""

    @contextlib.contextmanager
    def filling(self) -> Iterator[None]:
        """Disable the collector while the first inputs arrive, which are hardly garbage.

        It would visit all of them again and again, since their number grows.
        """
        gc.disable()
        try:
            yield
        finally:
            gc.enable()

    def after_pass(self, inputs: int) -> None:
        """Freeze the heap after the first pass over `inputs` inputs, and again if half are gone."""
        if not self._inputs:
            gc.freeze()
            self._inputs = inputs
        elif inputs <= self._inputs // 2:
            gc.unfreeze()
            gc.collect()
            gc.freeze()
            self._inputs = inputs
