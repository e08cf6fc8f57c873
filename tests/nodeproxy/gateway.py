"""A gateway that answers each connection with the header it came with, and then as an echo.

Run as ``python gateway.py PORT``; understands both versions of the PROXY protocol, and CONNECT.
"""

from __future__ import annotations

import asyncio
import ipaddress
import struct
import sys

SIGNATURE = b"\r\n\r\n\0\r\nQUIT\n"


async def header(reader: asyncio.StreamReader) -> str:
    first = await reader.readexactly(12)
    if first.startswith(b"CONNECT "):
        head = (first + await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        fields = dict(line.lower().split(": ", 1) for line in head[1:] if line)
        return f"connect {head[0].split()[1]} {fields.get('x-gardener-destination', '-')}"
    if first != SIGNATURE:
        line = first + await reader.readuntil(b"\r\n")
        words = line.decode().split()
        return f"v1 {words[2]} {words[3]} {words[5]}"
    _, family, length = struct.unpack("!BBH", await reader.readexactly(4))
    body = await reader.readexactly(length)
    size = 4 if family >> 4 == 1 else 16
    source, target = (ipaddress.ip_address(body[at : at + size]) for at in (0, size))
    port = struct.unpack("!H", body[2 * size + 2 : 2 * size + 4])[0]
    return f"v2 {source} {target} {port}"


async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        line = await header(reader)
        if line.startswith("connect"):
            writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        writer.write(f"{line}\n".encode())
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()
    except (OSError, EOFError, ValueError):
        pass
    finally:
        writer.close()


async def main() -> None:
    server = await asyncio.start_server(serve, None, int(sys.argv[1]))
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
