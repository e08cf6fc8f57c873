"""Documents in the console: links of problems lead to their sections."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from urllib.parse import urljoin

import aiohttp
import pytest

from fakes import builds
from fakes.console import logged_in, running_console
from gatehouse.console.documents import Documents, read_documents
from gatehouse.inspection import remedies
from gatehouse.kube import client as kube
from gatehouse.kube.config import Configuration
from gatehouse.kube.credentials import StaticToken

REMEDIES = (
    *remedies._REMEDIES.values(),
    *(value for value in vars(remedies).values() if isinstance(value, remedies.Remedy)),
)
DOCUMENTS = Documents(read_documents())


def body(text: str, *others: str) -> str:
    documents = Documents({"tasks/a.md": text, **dict.fromkeys(others, "")})
    return documents.page("tasks/a.md").partition("<main")[2]


async def test_each_remedy_has_a_page_with_its_section() -> None:
    configuration = Configuration("http://127.0.0.1:9", StaticToken())
    links = {remedy.document for remedy in REMEDIES}
    assert "docs/tasks/troubleshooting.md" in links
    assert any("#" in link for link in links)
    async with (
        kube.Client(configuration) as client,
        running_console(client) as console,
        logged_in(console) as session,
    ):
        for link in links:
            path, _, anchor = link.partition("#")
            async with session.get(f"/console/{path}") as response:
                assert response.status == 200, link
                assert "unsafe" not in response.headers["Content-Security-Policy"]
                assert not anchor or f'id="{anchor}"' in await response.text(), link
        for path in ("docs/nothing.md", "docs/", "docs/tasks"):
            async with session.get(f"/console/{path}") as response:
                assert response.status == 404, path


async def test_documents_need_a_login() -> None:
    configuration = Configuration("http://127.0.0.1:9", StaticToken())
    async with kube.Client(configuration) as client, running_console(client) as console:
        url = f"http://127.0.0.1:{console.port}/console/docs/tasks/troubleshooting.md"
        async with aiohttp.ClientSession() as session, session.get(url) as response:
            assert response.status == 401


@pytest.mark.parametrize("path", sorted(DOCUMENTS.texts))
def test_links_of_a_page_lead_to_pages(path: str) -> None:
    page = DOCUMENTS.page(path)
    for link in re.findall(r'<a href="([^"]*)"', page.partition("<main")[2]):
        target, _, anchor = urljoin(f"http://console/docs/{path}", link).partition("#")
        if target.startswith("http://console/docs/"):
            name = target.removeprefix("http://console/docs/")
            assert name in DOCUMENTS.texts, link
            assert not anchor or f'id="{anchor}"' in DOCUMENTS.page(name), link


def test_html_of_a_document_is_text_and_comments_are_left_out() -> None:
    page = body("<!-- Written by a program.\n -->\n# A\n\n<script>alert(1)</script> <b>x</b>\n")
    assert "Written" not in page
    assert "<script>" not in page
    assert "&lt;script&gt;" in page


def test_link_to_another_file_of_the_project_is_text() -> None:
    page = body("[a](../../README.md) [b](b.md#x) [c](https://c.example)", "tasks/b.md")
    assert "README" not in page
    assert 'href="b.md#x"' in page
    assert 'href="https://c.example"' in page


def test_link_with_a_script_is_text() -> None:
    assert "<a" not in body("[a](javascript:alert(1))")


def test_headings_have_distinct_anchors() -> None:
    page = body("# Some `code`, text\n\n## X\n\n## X\n")
    assert re.findall(r'id="([^"]*)"', page) == ["some-code-text", "x", "x-1"]


@pytest.mark.process
def test_wheel_has_all_documents(tmp_path: Path) -> None:
    installed = builds.build("1.0.0", tmp_path)
    program = (
        "from gatehouse.console import documents; print(documents.__file__); "
        "print(*documents.read_documents(), sep='\\n')"
    )
    python = str(installed.directory / "bin" / "python")
    done = subprocess.run(
        [python, "-c", program],
        env=installed.environment,
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path,
    )
    module, *paths = done.stdout.splitlines()
    assert module.startswith(str(tmp_path))
    assert sorted(paths) == sorted(DOCUMENTS.texts)
