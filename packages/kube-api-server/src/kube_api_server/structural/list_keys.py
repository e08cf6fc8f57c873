"""Keys of the items of sets and associative lists. A key may have a value of any type."""

from __future__ import annotations

from typing import Any

import msgspec

from kube_api_server.structural.schema_node import SchemaNode


def item_key(node: SchemaNode, item: Any) -> Any:
    """Return the value that identifies an item in its list; None if the item has no keys."""
    if node.list_type == "set":
        return item
    if not isinstance(item, dict):
        return None
    return {key: item[key] for key in node.list_keys if key in item}


def encode_key(key: Any) -> bytes:
    """Return a text that is equal for equal keys, whatever their type."""
    return msgspec.json.encode(key, order="sorted")


class FormerItems:
    """Items of the former state of a list. Only those of an associative list can be found."""

    def __init__(self, node: SchemaNode, old: Any, absent: object) -> None:
        self._node, self._absent = node, absent
        associative = node.list_type == "map" and isinstance(old, list)
        self._items = (
            {encode_key(item_key(node, item)): item for item in old} if associative else {}
        )

    def counterpart(self, item: Any) -> Any:
        """Return the former state of an item; `absent` if there is none."""
        if not self._items:
            return self._absent
        return self._items.get(encode_key(item_key(self._node, item)), self._absent)
