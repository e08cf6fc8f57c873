"""The part of a revision that a change of virtual hosts or upstreams must be tested with.

`nginx -t` of a whole revision takes as long as the reload after it. NGINX has already loaded the
files that did not change. So a test needs only the changed virtual hosts and upstreams, the
upstreams that they name, and the files that all share, changed or not. Conflicts with the other
files are found by the reload: the master then keeps its configuration.
"""

from __future__ import annotations

import contextlib
import itertools
import re
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath

from gatehouse.agent.nginx.manifests import Manifest
from gatehouse.agent.nginx.revision_store import MAIN
from gatehouse.agent.nginx.upstreams import is_dynamic
from gatehouse.agent.sidecars import NGINX_SIDECARS
from kube_base.runtime import private_files

_SHARED = "gatehouse"
"""Directory of the file set in a revision."""
_HOSTS = f"{_SHARED}/servers"
_UPSTREAMS = f"{_SHARED}/upstreams"

PART = f"{_HOSTS}/part.conf"
"""File of a test that includes the changed virtual hosts and upstreams."""

_READ_BY_EVERY_TEST = (
    f"{_SHARED}/http.conf",
    f"{_SHARED}/streams",
    f"{_SHARED}/stream-upstreams",
)
"""Shared files that change often, and directories of such files.

New files are accepted wherever they are, because every test reads all shared files.
"""

_READ_BY_SIDECARS = frozenset(spec.file for spec in NGINX_SIDECARS)
"""Files that NGINX does not read. A sidecar accepts or rejects them before the reload."""

_NAME = re.compile(rb"[\w.-]{1,250}")
"""Anything that may be the name of an upstream, of which a file name can be made."""

_LITERAL = re.compile(r"[\w./-]+", re.ASCII)
"""Path that NGINX includes as it is."""


class WideChangeError(Exception):
    """A test of the changed virtual hosts and upstreams is not enough. The message says why."""


def changed_part(loaded: Manifest, new: Manifest) -> frozenset[str]:
    """Return the new or changed virtual hosts and upstreams.

    Raises WideChangeError if other files differ than these, new files, shared files that every test
    reads, and files that NGINX does not read. `loaded`: manifest of the revision that it serves.
    """
    if loaded.nameserver != new.nameserver:
        raise WideChangeError("the port of the name server changed")
    if MAIN in new.unmanaged or loaded.unmanaged != new.unmanaged:
        raise WideChangeError(f"{MAIN} is that of the data plane")
    before = {entry.path: entry for entry in loaded.entries}
    after = {entry.path: entry for entry in new.entries}
    changed = {path for path, entry in after.items() if before.get(path) != entry}
    relevant = {path for path in changed | (before.keys() - after) if not is_dynamic(path)}
    tested = {path for path in relevant if _directory(path) in (_HOSTS, _UPSTREAMS)}
    others = {path for path in relevant - tested if path in before}
    accepted = {*_READ_BY_EVERY_TEST, *_READ_BY_SIDECARS}
    wide = {path for path in others if not {path, _directory(path)} & accepted}
    if wide:
        raise WideChangeError(
            f"virtual hosts may read {min(wide)} ({len(wide)} such files changed)"
        )
    return frozenset(tested & changed)


def _directory(path: str) -> str:
    return str(PurePosixPath(path).parent)


def write_part(revision: Path, part: Iterable[str], target: Path) -> None:
    """Create a directory `target` in which NGINX reads a part of a revision.

    Raises OSError, or WideChangeError if NGINX could take a path for a pattern.
    """
    # One listing costs less than a look for each word of a virtual host.
    upstreams = {path.name for path in _entries(revision / _UPSTREAMS)}
    files = {str(revision / path) for path in part}
    for file in [*files]:
        names = {f"{name.decode()}.conf" for name in _NAME.findall(Path(file).read_bytes())}
        files.update(str(revision / _UPSTREAMS / name) for name in names & upstreams)
    if strange := [file for file in files if not _LITERAL.fullmatch(file)]:
        raise WideChangeError(f"{min(strange)} may be a pattern")
    for directory in (target, target / _SHARED, target / _HOSTS):
        private_files.make_private_dir(directory)
    selected = {revision / _SHARED, revision / _HOSTS, revision / _UPSTREAMS}
    for path in itertools.chain(revision.iterdir(), (revision / _SHARED).iterdir()):
        if path not in selected:
            (target / path.relative_to(revision)).symlink_to(path)
    # A file for each would cost more than the test of it.
    text = "".join(f"include {file};\n" for file in sorted(files))
    private_files.write_private_file(target / PART, text.encode())


def _entries(directory: Path) -> Iterator[Path]:
    """Yield the entries of a directory, which may not exist."""
    with contextlib.suppress(FileNotFoundError):
        yield from directory.iterdir()
