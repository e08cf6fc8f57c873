"""A file set in the format that agent v2 fetches: JSON around a compressed archive of all files.

The JSON is that of Go's encoder for the message NginxConfig: field names as in the protocol, bytes
in base64, enums as numbers. Protobuf's own JSON mapping differs.
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

_CHUNK_BYTES = 1 << 20
"""Chunk size in bytes, far below the message limit of 4 MiB."""

MAX_UPLOAD_BYTES = 16 << 20
"""Maximum number of bytes read from an uploaded configuration."""

_MAX_UNPACKED_BYTES = 1 << 20
"""Maximum number of unpacked bytes that are searched. The main file comes first."""

_APPLY = commander_pb2.NginxConfigAction.APPLY


class Archive(msgspec.Struct, frozen=True):
    """Compressed files of one file set and its main file. Equal files result in equal archives."""

    contents: bytes
    checksum: str
    """Hexadecimal SHA-256 of the contents."""


def archive(file_set: FileSet, main: File) -> Archive:
    """Compress ``file_set`` and its main file. Paths stay relative: the agent adds the root."""
    packed = io.BytesIO()
    # Reproducible (no time stamp), at a level that compresses 10 MB in a tenth of a second.
    with (
        gzip.GzipFile(fileobj=packed, mode="wb", compresslevel=1, mtime=0) as compressed,
        tarfile.open(fileobj=compressed, mode="w", format=tarfile.PAX_FORMAT) as tar,
    ):
        for file in _files(file_set, main):
            member = tarfile.TarInfo(file.path)
            member.size, member.mode = len(file.content), _mode(file)
            tar.addfile(member, io.BytesIO(file.content))
    contents = packed.getvalue()
    return Archive(contents, hashlib.sha256(contents).hexdigest())


def document(file_set: FileSet, packed: Archive, main: File, about: Register) -> bytes:
    """Return the JSON for the NGINX that ``about`` describes.

    The directory map sets no actions, which declares it complete: the agent removes files of the
    previous configuration that are not in it.
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
                "checksum": file_set.version,
            },
            "zconfig": zipped,
            "zaux": None,
            "access_logs": {"access_log": []},
            "error_logs": {"error_log": []},
            "ssl": {},
            "directory_map": {"directories": _directories(_files(file_set, main), root)},
        }
    )


class _Zipped(msgspec.Struct):
    contents: bytes


class _Uploaded(msgspec.Struct):
    zconfig: _Zipped


def uploaded_head(uploaded: bytes) -> str:
    """Return the beginning of an uploaded configuration, or "" if it cannot be read."""
    try:
        contents = msgspec.json.decode(uploaded, type=_Uploaded).zconfig.contents
        # 31: with a gzip header.
        raw = zlib.decompressobj(31).decompress(contents, _MAX_UNPACKED_BYTES)
    except (msgspec.MsgspecError, zlib.error):
        return ""
    return raw.decode("utf-8", "replace")


def payload_chunks(
    payload: bytes, head: commander_pb2.Metadata
) -> Iterator[commander_pb2.DataChunk]:
    """Yield ``payload`` as a stream: one header, then the chunks in order."""
    offsets = range(0, len(payload), _CHUNK_BYTES)
    header = commander_pb2.ChunkedResourceHeader(
        meta=head,
        chunks=len(offsets),
        checksum=hashlib.sha256(payload).digest(),
        chunk_size=_CHUNK_BYTES,
    )
    yield commander_pb2.DataChunk(header=header)
    for number, offset in enumerate(offsets):
        data = commander_pb2.ChunkedResourceChunk(
            meta=head, chunk_id=number, data=payload[offset : offset + _CHUNK_BYTES]
        )
        yield commander_pb2.DataChunk(data=data)


def _files(file_set: FileSet, main: File) -> Iterator[File]:
    yield main
    yield from file_set.files.values()


def _mode(file: File) -> int:
    return 0o600 if file.secret else 0o644


def _directories(files: Iterable[File], root: str) -> list[dict[str, object]]:
    directories: dict[str, list[dict[str, object]]] = {}
    for file in files:
        directory, _, name = posixpath.join(root, file.path).rpartition("/")
        entry = {
            "name": name,
            "lines": 0,
            "mtime": {"seconds": 0, "nanos": 0},
            "permissions": f"{_mode(file):04o}",
            "size": len(file.content),
            "contents": b"",
        }
        directories.setdefault(directory, []).append(entry)
    return [
        {"name": name, "permissions": "0750", "files": directories[name]}
        for name in sorted(directories)
    ]
