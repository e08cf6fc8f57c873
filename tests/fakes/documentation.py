"""Fenced blocks of documents, and the commands in them."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/**/*.md")])

_FENCE = re.compile(r"^( *)(```|~~~)(\w*)\n(.*?)^\1\2 *$", re.MULTILINE | re.DOTALL)
_SPAN = re.compile(r"`([^`]+)`")
_HEREDOC = re.compile(r"<<'?(\w+)'?\n(.*?)^\1$", re.MULTILINE | re.DOTALL)


class Block(NamedTuple):
    """A fenced block of a document."""

    document: str
    """Path relative to the project."""
    line: int
    language: str
    text: str

    @property
    def heredocs(self) -> list[str]:
        """Inputs of commands of a shell block."""
        return [text for _, text in _HEREDOC.findall(self.text)]

    @property
    def commands(self) -> list[str]:
        """Commands of a `console` block (lines after `$`) or of a shell script.

        Continued lines are one command. Output and here documents are left out.
        """
        text = _HEREDOC.sub("\n", self.text).replace("\\\n", " ")
        if self.language == "console":
            return [line[2:] for line in text.splitlines() if line.startswith("$ ")]
        return _whole_commands(text)

    @property
    def session(self) -> list[tuple[str, str]]:
        """Commands of a `console` block with their documented output."""
        result: list[tuple[str, str]] = []
        for line in self.text.replace("\\\n", " ").splitlines():
            if line.startswith("$ "):
                result.append((line[2:], ""))
            else:
                command, output = result[-1]
                result[-1] = command, f"{output}{line}\n"
        return result


def _whole_commands(text: str) -> list[str]:
    """Join lines of a script whose quotes are open."""
    result: list[str] = []
    pending = ""
    for line in text.splitlines():
        pending = f"{pending}\n{line}" if pending else line
        try:
            shlex.split(pending)
        except ValueError:
            continue
        result += [pending] if pending.strip() else []
        pending = ""
    assert not pending, pending
    return result


def blocks(document: Path | str, *languages: str) -> list[Block]:
    """Return the blocks of a document in these languages; of all languages without arguments."""
    path = ROOT / document
    text = path.read_text(encoding="utf-8")
    name = str(path.relative_to(ROOT))
    return [
        Block(name, text.count("\n", 0, match.start()) + 1, match[3], match[4])
        for match in _FENCE.finditer(text)
        if not languages or match[3] in languages
    ]


def spans(document: Path | str) -> list[str]:
    """Return the code spans of a document, each in one line."""
    text = _FENCE.sub("", (ROOT / document).read_text(encoding="utf-8"))
    return [" ".join(span.split()) for span in _SPAN.findall(text)]


def simple_commands(line: str) -> list[list[str]]:
    """Split a command line at pipes, `&` and `;`. Return the words of each part.

    A command in `$(...)` is a part of its own. Targets of redirections are left out.
    """
    inner = re.findall(r"\$\(([^()]*)\)", line)
    line = re.sub(r"\$\([^()]*\)", "SUBSTITUTED", line)
    lexer = shlex.shlex(line, posix=True, punctuation_chars="|&;<>()")
    lexer.commenters = "#"
    lexer.whitespace_split = True
    parts: list[list[str]] = [[]]
    redirection = False
    for word in lexer:
        if word and set(word) <= set("|&;<>()"):
            redirection = bool(set(word) & set("<>"))
            parts += [] if redirection else [[]]
        elif not redirection:
            parts[-1].append(word)
        else:
            redirection = False
    nested = [part for text in inner for part in simple_commands(text)]
    return [*nested, *(part for part in parts if part)]
