"""The main NGINX configuration file. Agent v2 has none of its own and is sent this one."""

from __future__ import annotations

import posixpath
import re

import msgspec

from gatehouse.dataplane.file_set import File, FileSet
from gatehouse.transports.agents import main_file
from gatehouse.transports.agents.session import Register

_MARK = "# gatehouse: "
_MARKED = re.compile(rf"{_MARK}(.*)$", re.MULTILINE)


def build(about: Register, file_set: FileSet) -> File:
    """Build the file for the NGINX that ``about`` describes. Paths are relative to its directory.

    Its first line stores that description, because agent v2 sends it only once. Another control
    plane reads it back from the configuration with :func:`read_description`.
    """
    description = msgspec.json.encode(about).decode()
    text = main_file.render_main_file(about.proxy, file_set.files.keys(), about.loadable_modules)
    return File.make(posixpath.basename(about.main_file), f"{_MARK}{description}\n{text}")


def read_description(configuration: str) -> Register | None:
    """Return the description in a configuration that Gatehouse generated, or None."""
    match = _MARKED.search(configuration)
    try:
        about = msgspec.json.decode(match[1], type=Register) if match else None
    except msgspec.MsgspecError:
        return None
    return about if about is not None and posixpath.basename(about.main_file) else None
