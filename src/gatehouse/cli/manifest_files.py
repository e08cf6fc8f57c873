"""Objects in files, directories and standard input, each with its place."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from gatehouse.cli.errors import CLIError
from kube_base.types.objects import Object
from kube_base.types.yaml_documents import YamlDocumentError, decode_yaml_documents

STDIN = Path("-")
"""Path that stands for standard input."""

_SUFFIXES = (".yaml", ".yml", ".json")


class PlacedObject(msgspec.Struct, frozen=True):
    """An object in a file."""

    file: str
    document: int
    """Number of the document in the file, from 1."""
    value: Object
    repeated_keys: tuple[str, ...] = ()

    @property
    def place(self) -> str:
        """File and document number."""
        return f"{self.file}#{self.document}"


def read_manifest_files(paths: Iterable[Path]) -> Iterator[PlacedObject]:
    """Yield the objects of files, of directories with their subdirectories, and of ``-``.

    An object has kind and metadata with a name. Raises CLIError.
    """
    for path in paths:
        if path == STDIN:
            yield from _read_text("stdin", sys.stdin.read())
            continue
        if not path.exists():
            raise CLIError(f"{path}: no such file or directory")
        files = sorted(path.rglob("*")) if path.is_dir() else [path]
        for file in files:
            if path.is_dir() and (file.suffix not in _SUFFIXES or not file.is_file()):
                continue
            try:
                text = file.read_text(encoding="utf-8-sig")
            except (OSError, UnicodeDecodeError) as error:
                raise CLIError(f"{file}: {error}") from error
            yield from _read_text(str(file), text)


def _read_text(file: str, text: str) -> Iterator[PlacedObject]:
    try:
        for number, document in enumerate(decode_yaml_documents(text), 1):
            for value in _objects(document.value, f"{file}#{number}"):
                yield PlacedObject(file, number, value, tuple(key for _, key in document.repeated))
    except YamlDocumentError as error:
        raise CLIError(f"{file}: {error}") from error


def _objects(value: Any, place: str) -> Iterator[Object]:
    if value is None:
        return
    if isinstance(value, dict) and isinstance(value.get("items"), list):
        for item in value["items"]:
            yield from _objects(item, place)
        return
    metadata = value.get("metadata") if isinstance(value, dict) else None
    if not isinstance(metadata, dict) or not isinstance(value.get("kind"), str):
        raise CLIError(f"{place}: a document is not an object with kind and metadata")
    if not isinstance(metadata.get("name"), str):
        raise CLIError(f"{place}: {value['kind']}: metadata.name must be a string")
    yield value
