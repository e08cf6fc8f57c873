"""Files with several YAML documents are decoded as bodies are."""

from __future__ import annotations

import pytest

from kube_base.types.yaml_documents import YamlDocumentError, decode_yaml_documents


def test_documents_are_decoded_like_bodies() -> None:
    text = "a: 0o17\nb: on\nt: 2026-01-01T00:00:00Z\n---\n---\n{c: [*x]}\n".replace("*x", "1")
    documents = [document.value for document in decode_yaml_documents(text)]
    assert documents == [{"a": 15, "b": True, "t": "2026-01-01T00:00:00Z"}, None, {"c": [1]}]


def test_anchor_is_unknown_in_the_next_document() -> None:
    with pytest.raises(YamlDocumentError, match="alias \\*x names no complete node"):
        list(decode_yaml_documents("a: &x 1\n---\nb: *x\n"))


def test_repeated_keys_are_listed_by_document() -> None:
    documents = list(decode_yaml_documents("a: 1\nb: {c: 1, c: 2}\n---\na: 1\n"))
    assert [document.repeated for document in documents] == [((2, "c"),), ()]
    assert documents[0].value == {"a": 1, "b": {"c": 2}}
