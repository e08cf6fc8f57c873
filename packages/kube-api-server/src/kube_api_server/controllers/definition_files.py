"""Files of CRDs, in JSON or YAML, as of a project or a package."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from importlib.resources.abc import Traversable
from typing import Any

import msgspec

from kube_api_server.objects import crds
from kube_base.types.objects import Object
from kube_base.types.yaml_documents import YamlDocumentError, decode_yaml_documents

_KIND, _VERSION = "CustomResourceDefinition", f"{crds.GROUP}/v1"


class DefinitionError(Exception):
    """CRDs cannot be installed. The message names the file or the CRD."""


def read_definitions(directory: Traversable, digest: str) -> list[Object]:
    """Return the CRDs of a directory, with the annotation of their digest.

    Files and documents of something else, such as of kustomize, are left out. Raises
    DefinitionError, OSError.
    """
    result = []
    for path in sorted(directory.iterdir(), key=lambda path: path.name):
        for document in _documents(path):
            if isinstance(document, dict) and document.get("kind") == _KIND:
                result.append(_definition(str(path), document, digest))
    return result


def _documents(path: Traversable) -> Iterator[Any]:
    """Yield the documents of a file. Raises DefinitionError, OSError."""
    try:
        if path.name.endswith(".json"):
            yield msgspec.json.decode(path.read_bytes())
        elif path.name.endswith((".yaml", ".yml")):
            for document in decode_yaml_documents(path.read_text(encoding="utf-8")):
                yield document.value
    except (msgspec.DecodeError, YamlDocumentError, UnicodeError) as error:
        raise DefinitionError(f"{path}: {error}") from error


def _definition(file: str, document: Object, digest: str) -> Object:
    """Return a CRD with its digest. Raises DefinitionError if the digest cannot be built."""
    if (version := document.get("apiVersion")) != _VERSION:
        raise DefinitionError(f"{file}: apiVersion must be {_VERSION}, not {version!r}")
    metadata, spec = document.get("metadata"), document.get("spec")
    if not isinstance(metadata, dict) or not isinstance(metadata.get("name"), str):
        raise DefinitionError(f"{file}: metadata.name is missing")
    if not isinstance(spec, dict):
        raise DefinitionError(f"{file}: spec is missing")
    annotations = {**(metadata.get("annotations") or {}), digest: served_digest(document)}
    return {**document, "metadata": {**metadata, "annotations": annotations}}


def served_digest(definition: Object) -> str:
    """Return a digest of what a CRD serves."""
    served = {key: definition["spec"].get(key) for key in ("group", "scope", "versions")}
    return hashlib.sha256(msgspec.json.encode(served, order="sorted")).hexdigest()[:32]
