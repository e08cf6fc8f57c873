"""The page of fields of NGINX Gateway Fabric has every field, with the entry that is meant."""

from __future__ import annotations

import re

import ngf_compatibility as compatibility
import pytest
from nginx_gateway import SPECS

from fakes import peers

PAGE = compatibility.PAGE.read_text("utf-8")
RELEASE = "2.6.7"
YES = compatibility.Support("yes", "yes", "")
NO = compatibility.Support("no", "no", "why")


def rows_of(kind: str) -> set[str]:
    section = re.search(rf"^## {kind}\n(.*?)(?=^## |\Z)", PAGE, re.DOTALL | re.MULTILINE)
    assert section, kind
    return set(re.findall(r"^\| `spec\.([^`]+)` \|", section[1], re.MULTILINE))


@pytest.mark.parametrize("kind", sorted(SPECS))
def test_every_field_of_a_definition_has_a_row(kind: str) -> None:
    fields = {path for path, _ in compatibility.schema_fields(SPECS[kind])}
    assert fields
    assert fields - rows_of(kind) == set()


def test_every_support_entry_is_about_a_row() -> None:
    for entry in compatibility.read_support():
        kind, _, path = entry.partition(" ")
        rows = rows_of(kind)
        below = any(compatibility.is_below(row, path) for row in rows)
        assert not path or path in rows or below, entry


@pytest.mark.peers
def test_page_is_fresh() -> None:
    crds = peers.source_file(f"ngf-v{RELEASE}", "deploy/crds.yaml").decode()
    assert compatibility.page(crds, RELEASE) == PAGE, "run `make ngf-compatibility`"


def test_rows_compare_fields_and_values() -> None:
    own = {
        "properties": {
            "level": {"enum": ["info"]},
            "loose": {"type": "object"},
            "more": {"type": "string"},
        }
    }
    other = {
        "properties": {
            "level": {"enum": ["info", "fatal"]},
            "loose": {"properties": {"inner": {"type": "string"}}},
            "gone": {"properties": {"inner": {"type": "string"}}},
        }
    }
    result = list(compatibility.rows("Kind", own, other, {"Kind": YES, "Kind gone": NO}))
    assert result == [
        ("gone", "NGF", NO),
        ("level", "both", YES._replace(note="rejected values: fatal")),
        ("loose", "both", YES),
        ("more", "here", YES),
    ]


def test_field_without_entry_is_an_error() -> None:
    with pytest.raises(KeyError, match="Kind gone: no entry"):
        list(compatibility.rows("Kind", {"properties": {"gone": {}}}, {}, {"Kind other": YES}))


@pytest.mark.parametrize(
    "crds",
    [
        "",
        "404: Not Found\n--- text\n",
        "kind: ConfigMap\n",
        "kind: CustomResourceDefinition\nspec: {group: gateway.networking.k8s.io}\n",
    ],
    ids=["empty", "no objects", "other kind", "other group"],
)
def test_file_without_crds_of_the_group_is_an_error(crds: str) -> None:
    with pytest.raises(ValueError, match=r"no CRD of the group gateway\.nginx\.org"):
        compatibility.page(crds, RELEASE)
