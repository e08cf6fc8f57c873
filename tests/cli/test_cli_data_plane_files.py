"""Served and previous configuration of an NGINX agent's directory, and their difference."""

from __future__ import annotations

import hashlib
from pathlib import Path

import msgspec
import pytest

from gatehouse.agent.nginx.manifests import Manifest, ManifestEntry
from gatehouse.cli.data_plane_files import StoredConfigurations, configuration_diff, read_stored
from gatehouse.cli.secret_digest import SecretDigest

DIGEST = SecretDigest("key")


def revision(path: Path, text: str, secret: str = "", name: str = "secret") -> None:
    (path / "gatehouse").mkdir(parents=True)
    (path / "gatehouse" / "http.conf").write_text(text)
    if secret:
        (path / "gatehouse" / name).write_text(secret)
        digest = hashlib.sha256(secret.encode()).hexdigest()
        entry = ManifestEntry(f"gatehouse/{name}", digest, len(secret), secret=True)
        (path / "manifest.json").write_bytes(msgspec.json.encode(Manifest("v", (entry,))))


@pytest.fixture
def data(tmp_path: Path) -> Path:
    revision(tmp_path / "generations" / "9", "old;\n")
    revision(tmp_path / "generations" / "10", "new;\n", "not shown")
    (tmp_path / "current").symlink_to("generations/10")
    (tmp_path / "proven").symlink_to("generations/10")
    return tmp_path


def stored_in(data: Path) -> StoredConfigurations:
    result = read_stored(data, DIGEST)
    assert result is not None
    return result


def test_served_configuration_has_files_of_nginx_and_digests_of_others(data: Path) -> None:
    mark = DIGEST.mark(hashlib.sha256(b"not shown").digest(), 9)
    assert stored_in(data).served.texts == {
        "gatehouse/http.conf": "new;\n",
        "gatehouse/secret": f"{mark}\n",
    }
    assert mark.startswith("[redacted] (9 bytes, digest ")
    assert read_stored(data / "generations", DIGEST) is None


def test_secret_file_is_not_shown_whatever_its_name(tmp_path: Path) -> None:
    revision(tmp_path / "generations" / "1", "new;\n", "not shown", name="secret.conf")
    (tmp_path / "current").symlink_to("generations/1")
    texts = stored_in(tmp_path).served.texts
    assert texts["gatehouse/secret.conf"].startswith("[redacted] (9 bytes, digest ")


def test_digest_of_a_secret_depends_on_the_run_and_on_the_secret() -> None:
    first, second = SecretDigest.random(), SecretDigest.random()
    assert first.mark(b"a") == first.mark(b"a")
    assert first.mark(b"a") != first.mark(b"b")
    assert first.mark(b"a") != second.mark(b"a")


@pytest.mark.parametrize("place", ["generations/9", "spare", "proven"])
def test_previous_revision_is_found_where_the_agent_keeps_it(data: Path, place: str) -> None:
    if place == "spare":
        (data / "generations" / "9").rename(data / "spare")
    elif place == "proven":
        revision(data / "generations" / "7", "older;\n")
        (data / "proven").unlink()
        (data / "proven").symlink_to("generations/9")
    (data / "current" / "manifest.json").unlink()
    stored = stored_in(data)
    assert stored.previous is not None
    assert list(configuration_diff(stored.previous, stored.served, ("p (previous)", "p"))) == [
        "--- p (previous): gatehouse/http.conf",
        "+++ p: gatehouse/http.conf",
        "@@ -1 +1 @@",
        "-old;",
        "+new;",
    ]
    assert list(configuration_diff(stored.served, stored.served, ("p", "p"))) == []


def test_previous_configuration_differs_in_more_than_seeds(data: Path) -> None:
    """An agent adds seeds of endpoints to a revision, and removes them by another one."""
    again = data / "generations" / "11"
    revision(again, "new;\n", "not shown")
    seeds = data / "generations" / "10" / "seeds" / "web"
    seeds.mkdir(parents=True)
    (seeds / "servers.conf").write_text("server 127.0.0.1:9;\n")
    (data / "current").unlink()
    (data / "current").symlink_to("generations/11")
    stored = stored_in(data)
    assert stored.previous is not None
    assert stored.previous.texts["gatehouse/http.conf"] == "old;\n"
    assert list(stored.served.texts) == ["gatehouse/http.conf", "gatehouse/secret"]


def test_first_revision_has_no_previous_one(data: Path) -> None:
    (data / "generations" / "9" / "gatehouse" / "http.conf").unlink()
    assert stored_in(data).previous is None


def test_damaged_manifest_does_not_hide_the_configuration(data: Path) -> None:
    (data / "current" / "manifest.json").write_text("{")
    assert stored_in(data).served.texts == {"gatehouse/http.conf": "new;\n"}
