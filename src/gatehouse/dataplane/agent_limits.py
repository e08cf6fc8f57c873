"""Limits of the messages of agents and Envoys, and of what is stored of them. No I/O.

An agent is not trusted: it may send whatever its token allows. The limits hold for each stream or
instance, so that one agent cannot take the memory or the time of others. An agent within its own
limits never reaches them: they are several times the largest Gateway that is served by default.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import islice
from typing import TypeVar

from google.protobuf.message import DecodeError

MAX_SUBSCRIPTION_BYTES = 64 << 20
"""Maximum memory in bytes of the names and versions that one ADS stream requests and reports, by
the estimate of :func:`entry_bytes`. A Gateway with 30,000 routes takes 30 MB."""

ENTRY_BYTES = 250
"""Estimated memory in bytes of one name in the state of a stream, besides its characters."""

MAX_NAMES_PER_SECOND = 100_000
"""Names that one ADS stream may request per second. The rest of its messages waits meanwhile."""

MAX_REQUEST_HEAD_BYTES = 1 << 20
"""Maximum size in bytes of an ADS request without its lists of names and versions: the description
of the client and the reasons of a NACK."""

MAX_MESSAGE_BYTES = 4 << 20
"""Maximum size of a message of an NGINX agent in bytes, which is also the default of NGINX
Agent. Messages of many empty parts take up to 46 times as much memory."""

MAX_CALLS_PER_SECOND = 20
"""Calls per second of an NGINX agent that report something or open a stream. NGINX Agent looks for
changes every 5 s, and an agent reports each applied configuration in two calls."""

MAX_CALL_BURST = 200
"""Number of such calls that an agent may make at once."""

MAX_REQUESTS_PER_SECOND = 200
"""Files per second that an NGINX agent fetches, and messages per second in streams of an instance.
Answers to what the control plane sends on an ADS stream are not counted."""

MAX_REQUEST_BURST = 2000
"""Number of such files or messages at once, besides those for what the Gateway has."""

REQUESTS_PER_PUBLISHED = 8
"""Additional number of such files or messages at once for each file or resource of the Gateway. An
agent with an empty directory fetches each file once, and an Envoy may request each by itself."""

CALL_BYTES = 1 << 18
"""Size in bytes of a message or file that counts as one more call. The overview of 1,000 files
takes it."""

MAX_ERROR_CHARACTERS = 8192
"""Maximum length of a stored error or reason in characters."""

MAX_NACK_CHARACTERS = 16_384
"""Maximum length of the part of a NACK in which names are searched. Envoy sends 4,096 bytes."""

MAX_NACK_REASON_CHARACTERS = 2048
"""Maximum length of a stored reason of a NACK in characters. Envoy may quote a whole resource."""

MAX_TEXT_CHARACTERS = 256
"""Maximum length in characters of an identifier, such as a version, a module or a feature."""

MAX_LISTED = 4096
"""Maximum number of modules, features or extensions of one instance."""

MAX_PATH_CHARACTERS = 4096
"""Maximum length of a path in characters."""

MAX_UNMANAGED_FILES = 4096
"""Maximum number of remembered files of one instance that are not Gatehouse's."""

MAX_UNMANAGED_CHARACTERS = 1 << 20
"""Maximum length of their paths together in characters."""

_Message = TypeVar("_Message")


class MessageRefused(Exception):
    """A message that exceeds a limit or is invalid. Its sender's call ends with this text."""

    def __init__(self, reason: str, *, logged: bool = True) -> None:
        super().__init__(reason)
        self.logged = logged
        """False if the refusal follows another one for the same limit, and so is not logged."""


def entry_bytes(text: str) -> int:
    """Return the estimated memory of a name or version in the state of a stream."""
    return ENTRY_BYTES + len(text)


def parse_message(parse: Callable[[bytes], _Message], message: bytes) -> _Message:
    """Parse a message of an NGINX agent. Raises MessageRefused if it is too large or invalid."""
    if len(message) > MAX_MESSAGE_BYTES:
        raise MessageRefused(f"the message has more than {MAX_MESSAGE_BYTES} bytes")
    try:
        return parse(message)
    except DecodeError:
        raise MessageRefused("the message is not valid protobuf") from None


def cut_texts(texts: Iterable[str]) -> tuple[str, ...]:
    """Return identifiers, cut to the maximum number and length."""
    return tuple(text[:MAX_TEXT_CHARACTERS] for text in islice(texts, MAX_LISTED))


def cut_paths(paths: Iterable[str]) -> tuple[str, ...]:
    """Return the first paths, as many as fit into the maximum number and length."""
    result: list[str] = []
    characters = 0
    for path in islice(paths, MAX_UNMANAGED_FILES):
        characters += len(path)
        if characters > MAX_UNMANAGED_CHARACTERS:
            break
        result.append(path)
    return tuple(result)
