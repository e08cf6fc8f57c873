"""Adaptation of a main file that exists on the data plane, for file sets that rely on it.

A control plane such as that of NGINX Gateway Fabric lists `/etc/nginx/nginx.conf` as unmanaged: the
image of the data plane has it, and it includes the files that the control plane sends. Revisions
are in other directories. So words that name files of the file set become relative to the revision,
and the process settings of the main file become those of the agent.
"""

from __future__ import annotations

import functools
import glob
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from gatehouse.agent.nginx.apply_errors import ApplyError
from gatehouse.agent.nginx.manifests import Manifest, ManifestEntry
from gatehouse.agent.nginx.revision_store import MAIN
from gatehouse.agent.options import CONFIG_DIR

_PREFIX = f"{CONFIG_DIR}/"

_TOKEN = re.compile(
    r"""(?P<blank>\s+|\#[^\n]*)
      | (?P<end>[;{}])
      | (?P<word>"(?:[^"\\]|\\.)*" | '(?:[^'\\]|\\.)*' | (?:\\.|\$\{|[^\s;{\\])+ | .)""",
    re.VERBOSE | re.DOTALL,
)
"""Token of a configuration file. All tokens of a text together are the text."""

_PROCESS = frozenset({
    "daemon", "master_process", "pid", "user", "worker_processes", "worker_shutdown_timeout",
    "working_directory",
})  # fmt: skip
"""Directives of the main context that only the agent sets."""

_DUMPED = re.compile(r"^# configuration file (.+):$", re.MULTILINE)

Contents = Callable[[ManifestEntry], bytes]
"""Function that returns the content of an entry. Raises OSError."""

Resolve = Callable[[str], str]
"""Function that returns the word to write for a word of a configuration file."""


def config_files(
    manifest: Manifest, content: Contents, process: Sequence[str], http: Sequence[str]
) -> dict[str, str | Path]:
    """Return the files of a revision that are not stored as they must be: texts and links.

    `process`, `http`: see :func:`adapt_main_file`. Raises ApplyError if the data plane has no main
    file, or a file is not UTF-8 text.
    """
    links = {path for path in manifest.unmanaged if path != MAIN and "/" in path}
    links = {path for path in links if Path(_PREFIX, path).exists()}
    paths = {entry.path for entry in manifest.entries} | links
    files: dict[str, str | Path] = {path: Path(_PREFIX, path) for path in links}
    for entry in manifest.entries:
        if not is_config(entry.path):
            continue
        stored = _text(f"{_PREFIX}{entry.path}", functools.partial(content, entry))
        text = replace_paths(stored, lambda word: resolve_in_revision(word, paths))
        if text != stored:
            files[entry.path] = text
    existing = _text(f"{_PREFIX}{MAIN}", Path(_PREFIX, MAIN).read_bytes)
    files[MAIN] = adapt_main_file(
        existing, process, http, lambda word: resolve_in_main_file(word, paths, _exists)
    )
    return files


def _text(name: str, read: Callable[[], bytes]) -> str:
    try:
        return read().decode()
    except FileNotFoundError as error:
        raise ApplyError(
            f"{name}: the control plane needs it, but the data plane lacks it"
        ) from error
    except UnicodeDecodeError as error:
        raise ApplyError(f"{name}: must be UTF-8 text") from error


def _exists(pattern: str) -> bool:
    # Path.glob raises for some patterns, for example with "**" in a word.
    return bool(glob.glob(pattern)) if "*" in pattern else Path(pattern).exists()  # noqa: PTH207


def resolve_in_revision(word: str, paths: Collection[str]) -> str:
    """Return the relative path of a file or pattern that matches `paths`, else the word itself.

    NGINX resolves relative paths from the directory of the main file, which is the revision.
    """
    relative = word.removeprefix(_PREFIX)
    if relative == word:
        return word
    if relative in paths or ("*" in relative and any(_matches(path, relative) for path in paths)):
        return relative
    return word


def resolve_in_main_file(word: str, paths: Collection[str], exists: Callable[[str], bool]) -> str:
    """Return the word to write for a word of the main file.

    Relative paths of other files become absolute. `exists` returns whether a path or pattern exists
    on the data plane.
    """
    absolute = word if word.startswith("/") else f"{_PREFIX}{word}"
    resolved = resolve_in_revision(absolute, paths)
    if resolved != absolute:
        return resolved
    return absolute if exists(absolute) else word


def replace_paths(text: str, resolve: Resolve) -> str:
    """Return a configuration file in which words are resolved."""
    if _PREFIX not in text:
        return text
    return _TOKEN.sub(lambda match: _resolved(match, resolve), text)


def adapt_main_file(
    text: str, process: Sequence[str], http: Sequence[str], resolve: Resolve
) -> str:
    """Return the main file of a revision, made of that of the data plane.

    `process` and `http` are the agent's own lines of the main and the `http` context. They replace
    directives of the same purpose.
    """
    temporary = {line.split()[0] for line in http if "_temp_path " in line}
    own = "".join(f"    {line}\n" for line in http)
    output, blocks, missing = [f"{line}\n" for line in process], list[str](), True
    for statement in _statements(text):
        words = [token[0] for token in statement if token.lastgroup == "word"]
        name, end = next(iter(words), ""), statement[-1][0]
        replaced = _PROCESS if not blocks else temporary if blocks == ["http"] else ()
        if end != ";" or name not in replaced:
            output += _resolved_arguments(statement, resolve)
        if end == "{":
            blocks.append(name)
        elif end == "}" and blocks:
            blocks.pop()
        if missing and blocks == ["http"]:
            output.append(f"\n{own}")
            missing = False
    if missing:
        output.append(f"\nhttp {{\n{own}}}\n")
    return "".join(output)


def unread_files(dump: str, directory: str, paths: Collection[str]) -> list[str]:
    """Return the configuration files of `paths` that are not in the output of `nginx -T`.

    `directory` is that of the main file.
    """
    read = {name.removeprefix(f"{directory}/") for name in _DUMPED.findall(dump)}
    return sorted(path for path in paths if is_config(path) and path not in read)


def is_config(path: str) -> bool:
    """Return whether NGINX parses a file of a file set, by its name."""
    return path.endswith(".conf")


def _statements(text: str) -> Iterator[list[re.Match[str]]]:
    """Yield the tokens of each statement up to its `;`, `{` or `}`, and those after the last."""
    statement: list[re.Match[str]] = []
    for token in _TOKEN.finditer(text):
        statement.append(token)
        if token.lastgroup == "end":
            yield statement
            statement = []
    if statement:
        yield statement


def _resolved_arguments(statement: Sequence[re.Match[str]], resolve: Resolve) -> Iterator[str]:
    name_seen = False
    for token in statement:
        is_word = token.lastgroup == "word"
        yield _resolved(token, resolve) if is_word and name_seen else token[0]
        name_seen |= is_word


def _resolved(token: re.Match[str], resolve: Resolve) -> str:
    text = token[0]
    if token.lastgroup != "word":
        return text
    quoted = len(text) > 1 and text[0] == text[-1] and text[0] in "\"'"
    quote, word = (text[0], text[1:-1]) if quoted else ("", text)
    return f"{quote}{resolve(word)}{quote}"


def _matches(path: str, pattern: str) -> bool:
    return path.count("/") == pattern.count("/") and fnmatchcase(path, pattern)
