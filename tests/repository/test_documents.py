"""Documents name only paths, files and headings that exist."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BASES = (ROOT, ROOT / "src" / "gatehouse", *ROOT.glob("packages/*/src"))
"""Directories to which paths in documents are relative."""
FOLDERS = ("", "docs/**/", "examples/**/", "packages/*/")
DOCUMENTS = sorted(path for folder in FOLDERS for path in ROOT.glob(f"{folder}*.md"))
FENCE = re.compile(r"^(```|~~~).*?^\1[^\n]*$", re.M | re.S)
PATH = re.compile(r"`([\w./-]+(?:\.(?:py|lua|txt|toml|md|yaml)|/))`")
LINK = re.compile(r"\]\(([^)\s]+)\)")


def prose(document: Path) -> str:
    return FENCE.sub("", document.read_text())


def anchors(document: Path) -> set[str]:
    """Return the anchors that GitHub gives the headings of a document."""
    headings = re.findall(r"^#+ (.+)$", prose(document), re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("name", ["CONTRIBUTING.md", "docs/concepts/architecture.md"])
def test_paths_in_document_exist(name: str) -> None:
    paths = set(PATH.findall(prose(ROOT / name)))
    assert len(paths) > 20, "the pattern matches paths"
    generated = {"wire/", "seeds/"}
    missing = {path for path in paths if not any((base / path).exists() for base in BASES)}
    assert missing <= generated


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_link_targets_in_document_exist(document: Path) -> None:
    for link in LINK.findall(prose(document)):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (document.parent / path).resolve() if path else document
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_path_of_the_project_in_document_exists(document: Path) -> None:
    folders = {folder.name for base in BASES for folder in base.iterdir() if folder.is_dir()}
    for path in PATH.findall(prose(document)):
        if path.partition("/")[0] in folders and not path.startswith("wire/"):
            assert any((base / path).exists() for base in BASES), path


PAGES = sorted(page for page in ROOT.glob("docs/*/*.md") if page.name != "README.md")


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_page_is_in_the_index_of_its_folder(page: Path) -> None:
    index = page.parent / "README.md"
    assert page.name in {link.partition("#")[0] for link in LINK.findall(index.read_text())}
