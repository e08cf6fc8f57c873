"""Limits of the nesting and the number of nodes of documents that strangers write.

Code that handles them walks objects recursively. Half of Python's recursion limit is reached at
about 450 levels, so that this limit leaves a margin of two. The deepest definitions in use
(CustomResourceDefinitions with whole Pod templates) have about 50 levels.
"""

from __future__ import annotations

MAX_JSON_DEPTH = 200
"""Levels of mappings and lists in one document."""

MAX_NODES = 100_000
"""Keys and values in one document. The largest objects in use have about 50,000."""
