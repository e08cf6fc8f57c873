"""The part of a revision that a change of virtual hosts or upstreams must be tested with.

`nginx -t` of a whole revision takes as long as the reload after it. NGINX has already loaded the
files that did not change. So a test needs only the changed virtual hosts and upstreams, the
upstreams that they name, and the files that all share, changed or not. Conflicts with the other
files are found by the reload: the master then keeps its configuration.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable
from pathlib import Path, PurePosixPath

from gatehouse.agent.nginx.manifests import Manifest
from gatehouse.agent.nginx.revision_store import MAIN
from gatehouse.agent.nginx.upstreams import is_dynamic
from gatehouse.runtime import private_files

_SHARED = "gatehouse"
"""Directory of the file set in a revision."""
_HOSTS = f"{_SHARED}/servers"
_UPSTREAMS = f"{_SHARED}/upstreams"

_READ_BY_EVERY_TEST = (
    f"{_SHARED}/http.conf",
    f"{_SHARED}/connectors.json",
    f"{_SHARED}/streams",
    f"{_SHARED}/stream-upstreams",
)
"""Shared files that change often, and directories of such files.

New files are accepted wherever they are, because every test reads all shared files.
"""

_NAME = re.compile(rb"[\w.-]{1,250}")
"""Anything that may be the name of an upstream, of which a file name can be made."""


def changed_part(loaded: Manifest, new: Manifest) -> frozenset[str] | None:
    """Return the new or changed virtual hosts and upstreams; None if a test of them is not enough.

    It is enough if no other files differ than these, new files, and shared files that every test
    reads. `loaded`: manifest of the revision that NGINX serves.
    """
    shared = (loaded.nameserver, loaded.unmanaged) == (new.nameserver, new.unmanaged)
    if not shared or MAIN in new.unmanaged:
        return None
    before = {entry.path: entry for entry in loaded.entries}
    after = {entry.path: entry for entry in new.entries}
    changed = {path for path, entry in after.items() if before.get(path) != entry}
    relevant = {path for path in changed | (before.keys() - after) if not is_dynamic(path)}
    tested = {path for path in relevant if _directory(path) in (_HOSTS, _UPSTREAMS)}
    others = {path for path in relevant - tested if path in before}
    if not all({path, _directory(path)} & {*_READ_BY_EVERY_TEST} for path in others):
        return None
    return frozenset(tested & changed)


def _directory(path: str) -> str:
    return str(PurePosixPath(path).parent)


def link_part(revision: Path, part: Iterable[str], target: Path) -> None:
    """Create a directory `target` with links to a part of a revision. Raises OSError."""
    files = {revision / path for path in part}
    for path in [*files]:
        names = set(_NAME.findall(path.read_bytes()))
        candidates = (revision / _UPSTREAMS / f"{name.decode()}.conf" for name in names)
        files.update(filter(Path.exists, candidates))
    for directory in (target, target / _SHARED, target / _HOSTS, target / _UPSTREAMS):
        private_files.make_private_dir(directory)
    selected = {revision / _SHARED, revision / _HOSTS, revision / _UPSTREAMS}
    for path in itertools.chain(revision.iterdir(), (revision / _SHARED).iterdir(), files):
        if path not in selected:
            (target / path.relative_to(revision)).symlink_to(path)
