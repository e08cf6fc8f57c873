"""The file that NGINX begins with. Agent v2 has none of its own, so it is sent this one."""

from __future__ import annotations

import posixpath
import re

import msgspec

from gatehouse.dataplane.file_set import File, FileSet
from gatehouse.transports.agents import main_file
from gatehouse.transports.agents.session import Register

_MARK = "# gatehouse: "
_MARKED = re.compile(rf"{_MARK}(.*)$", re.MULTILINE)


def make(about: Register, bundle: FileSet) -> File:
    """Give the file for the NGINX that ``about`` describes; paths are relative to its directory.

    Its first line holds that description, since agent v2 gives it only once: a control plane that
    has not heard it reads it back from the configuration, with :func:`described`.
    """
    description = msgspec.json.encode(about).decode()
    text = f"{_MARK}{description}\n{main_file.render(about.proxy, bundle.files.keys())}"
    return File.make(posixpath.basename(about.main_file), text)


def described(configuration: str) -> Register | None:
    """Give what a configuration of ours, in one text, says of the NGINX that it was made for."""
    found = _MARKED.search(configuration)
    try:
        about = msgspec.json.decode(found[1], type=Register) if found else None
    except msgspec.MsgspecError:
        return None
    return about if about is not None and posixpath.basename(about.main_file) else None
