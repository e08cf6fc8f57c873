"""Configuration in the directory of an agent, as text by name. Secrets are redacted."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from difflib import unified_diff
from pathlib import Path

import msgspec

from gatehouse.agent.nginx.manifests import Manifest
from gatehouse.agent.nginx.revision_store import MANIFEST
from gatehouse.agent.nginx.seed_files import SEEDS
from gatehouse.cli.secret_digest import SecretDigest
from kube_base.runtime.printable import printable

_CURRENT, _GOOD, _SPARE, _REVISIONS = "current", "proven", "spare", "generations"
"""Names in the directory of an NGINX agent; see its revision store."""

_RESOURCES = "envoy.db"
"""Name of the database of an Envoy agent."""

_SECRET_HEADER = re.compile(
    r"(?P<directive>\b(?:proxy_set_header|grpc_set_header|add_header)\s+"
    r"\"?(?:proxy-)?(?:authorization|set-cookie|cookie)\"?\s+)(?P<value>\"[^\"$\n]+\"|[^\"$;\s]+)",
    re.IGNORECASE,
)
"""Directives of NGINX that set a secret header to a value without variables."""


class DataPlaneConfiguration(msgspec.Struct, frozen=True):
    """Configuration of one data plane: files of NGINX by path, or Envoy's resources as one file."""

    texts: Mapping[str, str] = {}

    def printable(self) -> DataPlaneConfiguration:
        """Return a configuration that a terminal may show."""
        return DataPlaneConfiguration(
            {printable(name): printable(text, keep="\n\t") for name, text in self.texts.items()}
        )


class StoredConfigurations(msgspec.Struct, frozen=True):
    """Configurations in the directory of an agent."""

    served: DataPlaneConfiguration
    previous: DataPlaneConfiguration | None = None
    """Configuration before that one; None if it is not stored. Agents keep one earlier revision of
    NGINX with other files, and what the last update of an Envoy replaced."""


def read_stored(data: Path, digest: SecretDigest) -> StoredConfigurations | None:
    """Return the configurations in a directory; None if it has none. Raises OSError."""
    if (data / _CURRENT).is_dir():
        served = _revision(data / _CURRENT, digest)
        earlier = (_revision(path, digest) for path in _other_revisions(data))
        return StoredConfigurations(
            served, next((item for item in earlier if item != served), None)
        )
    if (data / _RESOURCES).is_file():
        # Imported here because an NGINX image lacks Envoy's messages.
        from gatehouse.cli import envoy_config

        stored = envoy_config.read_resources(data / _RESOURCES)
        dump = envoy_config.ResourceDump(digest)
        served, previous = (
            DataPlaneConfiguration({"resources.yaml": text} if text else {}).printable()
            for text in map(dump.text, (stored.accepted, stored.previous))
        )
        return StoredConfigurations(
            served, previous if previous.texts and previous != served else None
        )
    return None


def _other_revisions(data: Path) -> Iterator[Path]:
    """Yield the revisions that are not served, the newest first."""
    current = (data / _CURRENT).resolve()
    numbered = sorted(
        (path for path in (data / _REVISIONS).glob("[0-9]*") if path.is_dir()),
        key=lambda path: int(path.name),
        reverse=True,
    )
    for path in ((data / _GOOD).resolve(), *numbered, data / _SPARE):
        if path.is_dir() and path != current and any(path.rglob("*.conf")):
            yield path


def _revision(directory: Path, digest: SecretDigest) -> DataPlaneConfiguration:
    entries = {entry.path: entry for entry in _manifest(directory).entries}
    texts = {}
    for path in sorted(directory.rglob("*.conf")):
        name = str(path.relative_to(directory))
        if name.startswith(f"{SEEDS}/"):
            # The agent adds and removes them at any time. The endpoints are in other files.
            continue
        if name not in entries or not entries[name].secret:
            text = path.read_text(encoding="utf-8", errors="replace")
            texts[name] = _without_secret_headers(text, digest)
    for name, entry in entries.items():
        if name not in texts:
            # An obsolete revision has lost its secrets, but not their hashes.
            texts[name] = digest.mark(bytes.fromhex(entry.digest), entry.size) + "\n"
    return DataPlaneConfiguration(texts).printable()


def _manifest(directory: Path) -> Manifest:
    """Return the manifest of a revision, without entries if it is damaged. Raises OSError."""
    try:
        return msgspec.json.decode((directory / MANIFEST).read_bytes(), type=Manifest)
    except (FileNotFoundError, msgspec.MsgspecError):
        return Manifest(version="", entries=())


def _without_secret_headers(text: str, digest: SecretDigest) -> str:
    return _SECRET_HEADER.sub(
        lambda match: f'{match["directive"]}"{digest.mark(match["value"].encode())}"', text
    )


def configuration_diff(
    before: DataPlaneConfiguration, after: DataPlaneConfiguration, labels: tuple[str, str]
) -> Iterator[str]:
    """Yield the lines of a unified diff of two configurations; nothing if they are equal."""
    for name in sorted({*before.texts, *after.texts}):
        old, new = (side.texts.get(name, "").splitlines() for side in (before, after))
        names = tuple(f"{label}: {name}" for label in labels)
        yield from unified_diff(old, new, names[0], names[1], lineterm="")
