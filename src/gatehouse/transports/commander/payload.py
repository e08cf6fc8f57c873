"""A bundle in the form that agent v2 fetches: JSON around a compressed archive of all its files.

The JSON is the one that Go's encoder makes of the message NginxConfig: names as in the protocol,
bytes in base64, enums as numbers. Protobuf's own mapping to JSON is another one.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import posixpath
import tarfile
import zlib
from collections.abc import Iterable, Iterator

import msgspec

from gatehouse.dataplane.file_set import File, FileSet
from gatehouse.transports.agents.session import Register
from gatehouse.wire.agent_sdk import commander_pb2

CHUNK_BYTES = 1 << 20
"""Size of the pieces; far below the 4 MiB that a message may have."""

UPLOAD_MAX = 16 << 20
"""Bytes of an uploaded configuration that are read."""

_UNPACKED_MAX = 1 << 20
"""Bytes of it that are looked at: the main file comes first."""

_APPLY = commander_pb2.NginxConfigAction.APPLY


class Archive(msgspec.Struct, frozen=True):
    """The files of one bundle with its main file, compressed; equal files make equal archives."""

    contents: bytes
    checksum: str
    """Hexadecimal SHA-256 of the contents."""


def archive(bundle: FileSet, main: File) -> Archive:
    """Compress ``bundle`` and its main file. Paths stay relative: the agent knows to where."""
    packed = io.BytesIO()
    # Without a time, and at a level where 10 MB take a tenth of a second.
    with (
        gzip.GzipFile(fileobj=packed, mode="wb", compresslevel=1, mtime=0) as compressed,
        tarfile.open(fileobj=compressed, mode="w", format=tarfile.PAX_FORMAT) as tar,
    ):
        for file in _files(bundle, main):
            member = tarfile.TarInfo(file.path)
            member.size, member.mode = len(file.content), _mode(file)
            tar.addfile(member, io.BytesIO(file.content))
    contents = packed.getvalue()
    return Archive(contents, hashlib.sha256(contents).hexdigest())


def document(bundle: FileSet, packed: Archive, main: File, about: Register) -> bytes:
    """Give the JSON for the NGINX that ``about`` describes.

    The directory map sets no actions, which says that it is all there shall be: the agent removes
    what of the former configuration is not in it.
    """
    root = posixpath.dirname(about.main_file)
    zipped = {
        "contents": packed.contents,
        "checksum": packed.checksum,
        "root_directory": root,
    }
    return msgspec.json.encode(
        {
            "action": _APPLY,
            "config_data": {
                "system_id": "",
                "nginx_id": about.nginx_id,
                "checksum": bundle.version,
            },
            "zconfig": zipped,
            "zaux": None,
            "access_logs": {"access_log": []},
            "error_logs": {"error_log": []},
            "ssl": {},
            "directory_map": {"directories": _directories(_files(bundle, main), root)},
        }
    )


class _Zipped(msgspec.Struct):
    contents: bytes


class _Uploaded(msgspec.Struct):
    zconfig: _Zipped


def beginning(uploaded: bytes) -> str:
    """Give the beginning of a configuration that an agent uploaded; empty if it cannot be read."""
    try:
        contents = msgspec.json.decode(uploaded, type=_Uploaded).zconfig.contents
        # 31: with a header of gzip's.
        raw = zlib.decompressobj(31).decompress(contents, _UNPACKED_MAX)
    except (msgspec.MsgspecError, zlib.error):
        return ""
    return raw.decode("utf-8", "replace")


def chunks(payload: bytes, head: commander_pb2.Metadata) -> Iterator[commander_pb2.DataChunk]:
    """Give ``payload`` as a stream: one header, then the pieces in order."""
    offsets = range(0, len(payload), CHUNK_BYTES)
    header = commander_pb2.ChunkedResourceHeader(
        meta=head,
        chunks=len(offsets),
        checksum=hashlib.sha256(payload).digest(),
        chunk_size=CHUNK_BYTES,
    )
    yield commander_pb2.DataChunk(header=header)
    for number, offset in enumerate(offsets):
        data = commander_pb2.ChunkedResourceChunk(
            meta=head, chunk_id=number, data=payload[offset : offset + CHUNK_BYTES]
        )
        yield commander_pb2.DataChunk(data=data)


def _files(bundle: FileSet, main: File) -> Iterator[File]:
    yield main
    yield from bundle.files.values()


def _mode(file: File) -> int:
    return 0o600 if file.secret else 0o644


def _directories(files: Iterable[File], root: str) -> list[dict[str, object]]:
    found: dict[str, list[dict[str, object]]] = {}
    for file in files:
        directory, _, name = posixpath.join(root, file.path).rpartition("/")
        described = {
            "name": name,
            "lines": 0,
            "mtime": {"seconds": 0, "nanos": 0},
            "permissions": f"{_mode(file):04o}",
            "size": len(file.content),
            "contents": b"",
        }
        found.setdefault(directory, []).append(described)
    return [{"name": name, "permissions": "0750", "files": found[name]} for name in sorted(found)]
