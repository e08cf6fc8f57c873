"""Clients of the TLS servers of an installation, through the TLS handshake.

The servers are the API server, the channel of agents, that of external machines, and the rate
limit service; no other server of an installation uses TLS. Each accepts TLS 1.3. The API server
and the rate limit service also accept TLS 1.2 with forward secrecy and authenticated encryption.
Each rejects older versions, other cipher suites and renegotiation, whatever the key of its
certificate.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import re
import socket
import ssl
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import NameOID

from fakes.inprocess import Server
from fakes.ratelimit_process import RateLimitProcess
from gatehouse.standalone.state_directory import State

Version = ssl.TLSVersion
Key = rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey
KEYS: dict[str, Callable[[], Key]] = {
    "rsa": lambda: rsa.generate_private_key(65_537, 2048),
    "ecdsa": lambda: ec.generate_private_key(ec.SECP256R1()),
}
REJECTED = {
    "TLS 1.0": (Version.TLSv1, "ALL:@SECLEVEL=0"),
    "TLS 1.1": (Version.TLSv1_1, "ALL:@SECLEVEL=0"),
    "RSA key exchange": (Version.TLSv1_2, "kRSA:@SECLEVEL=0"),
    "DHE": (Version.TLSv1_2, "kDHE:@SECLEVEL=0"),
    "no authentication": (Version.TLSv1_2, "aNULL:@SECLEVEL=0"),
    "no encryption": (Version.TLSv1_2, "eNULL:@SECLEVEL=0"),
    "CBC": (Version.TLSv1_2, "ECDHE+AES:!AESGCM:!AESCCM:@SECLEVEL=0"),
    "CCM": (Version.TLSv1_2, "ECDHE+AESCCM:@SECLEVEL=0"),
}
TLS_1_2 = (Version.TLSv1_2, "ECDHE+AESGCM")
TLS_1_3 = (Version.TLSv1_3, "DEFAULT")
OLDER = {"API server", "rate limits"}
"""Servers for clients that do not all have TLS 1.3."""


class Pair:
    """A self-signed certificate, which is also the only trusted one."""

    def __init__(
        self, directory: Path, key: rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey
    ) -> None:
        self.cert, self.key = directory / "tls.crt", directory / "tls.key"
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "tls.example")])
        now = datetime.datetime.now(datetime.UTC)
        certificate = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(name)
            .public_key(key.public_key())
            .serial_number(1)
            .not_valid_before(now - datetime.timedelta(days=1))
            .not_valid_after(now + datetime.timedelta(days=1))
            .add_extension(x509.SubjectAlternativeName([x509.DNSName("tls.example")]), False)
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .sign(key, hashes.SHA256())
        )
        self.cert.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        encoding, form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
        self.key.write_bytes(key.private_bytes(encoding, form, serialization.NoEncryption()))


AGENT_SERVER = """
import asyncio, sys
from pathlib import Path
from gatehouse.transports.server import AgentServer

async def serve(cert, key, *outside):
    server = AgentServer(None)
    if outside:
        port = await server.start_outside("127.0.0.1:0", cert, key, cert, None)
    else:
        port = await server.start("127.0.0.1:0", cert, key)
    print("port", port, flush=True)
    await asyncio.Event().wait()

asyncio.run(serve(Path(sys.argv[1]), Path(sys.argv[2]), *sys.argv[3:]))
"""
"""A process of its own: gRPC reads settings when it is imported."""


@contextlib.asynccontextmanager
async def api_server(pair: Pair, directory: Path) -> AsyncIterator[int]:
    files = {"tls_cert": pair.cert, "tls_key": pair.key, "client_ca": pair.cert}
    server = Server(State(directory / "state"), **files)
    async with server.running():
        yield server.port


@contextlib.asynccontextmanager
async def agents(pair: Pair, directory: Path, *outside: str) -> AsyncIterator[int]:
    arguments = ("-c", AGENT_SERVER, str(pair.cert), str(pair.key), *outside)
    process = await asyncio.create_subprocess_exec(
        sys.executable, *arguments, stdout=asyncio.subprocess.PIPE
    )
    try:
        assert process.stdout is not None
        async for line in process.stdout:
            if line.startswith(b"port "):
                yield int(line.split()[1])
                break
    finally:
        process.kill()
        await process.wait()


def machines(pair: Pair, directory: Path) -> AbstractAsyncContextManager[int]:
    return agents(pair, directory, "outside")


@contextlib.asynccontextmanager
async def rate_limits(pair: Pair, directory: Path) -> AsyncIterator[int]:
    """Run the rate limit service without a Redis, which it needs for answers only."""
    files = ("--tls-cert-file", str(pair.cert), "--tls-private-key-file", str(pair.key))
    redis, log = f"unix://{directory}/redis.sock", directory / "ratelimit.log"
    process = RateLimitProcess(redis, log, *files)
    await asyncio.to_thread(process.start)
    try:
        yield process.port
    finally:
        process.kill()


SERVERS: dict[str, Callable[[Pair, Path], AbstractAsyncContextManager[int]]] = {
    "API server": api_server,
    "agents": agents,
    "machines": machines,
    "rate limits": rate_limits,
}


def connect(port: int, pair: Pair, version: ssl.TLSVersion, ciphers: str) -> str:
    """Complete a handshake with one version; return its name. Raises ssl.SSLError."""
    context = ssl.create_default_context(cafile=str(pair.cert))
    context.set_ciphers(ciphers)
    context.minimum_version = context.maximum_version = version
    context.load_cert_chain(pair.cert, pair.key)
    context.set_alpn_protocols(["h2"])
    with (
        socket.create_connection(("127.0.0.1", port), 10) as plain,
        context.wrap_socket(plain, server_hostname="tls.example") as secure,
    ):
        return str(secure.version())


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion:DeprecationWarning")
@pytest.mark.parametrize("kind", KEYS)
@pytest.mark.parametrize("name", SERVERS)
async def test_server_rejects_old_versions_and_weak_suites(
    tmp_path: Path, name: str, kind: str
) -> None:
    pair = Pair(tmp_path, KEYS[kind]())
    async with SERVERS[name](pair, tmp_path) as port:
        for version, ciphers in (TLS_1_2, TLS_1_3) if name in OLDER else (TLS_1_3,):
            result = await asyncio.to_thread(connect, port, pair, version, ciphers)
            assert result == version.name.replace("_", ".")
        outcomes = {}
        rejected = REJECTED if name in OLDER else REJECTED | {"TLS 1.2": TLS_1_2}
        for weakness, (version, ciphers) in rejected.items():
            try:
                outcomes[weakness] = await asyncio.to_thread(connect, port, pair, version, ciphers)
            except ssl.SSLError as error:
                outcomes[weakness] = error.reason or ""
    # The server ends the connection; this client would give other reasons.
    assert all(re.search("ALERT|_EOF_", outcome) for outcome in outcomes.values()), outcomes


@pytest.mark.parametrize("name", sorted(OLDER))
async def test_server_rejects_renegotiation(tmp_path: Path, name: str) -> None:
    pair = Pair(tmp_path, KEYS["ecdsa"]())
    async with SERVERS[name](pair, tmp_path) as port:
        text = await asyncio.to_thread(renegotiate, port, pair)
    _, marker, rest = text.partition("RENEGOTIATING")
    assert marker
    assert "verify return" not in rest


def renegotiate(port: int, pair: Pair) -> str:
    """Ask for a renegotiation of TLS 1.2. Return the output of the client until it ends or checks
    the certificate again."""
    command = (
        *("openssl", "s_client", "-connect", f"127.0.0.1:{port}", "-tls1_2", "-alpn", "h2"),
        *("-cert", str(pair.cert), "-key", str(pair.key), "-CAfile", str(pair.cert)),
    )
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        output = b""
        for line in process.stdout:
            output += line
            if b"Extended master secret" in line:  # The last line on the handshake.
                process.stdin.write(b"R\n")
                process.stdin.flush()
            if b"RENEGOTIATING" in output and b"verify return" in line:
                break
        process.kill()
    return output.decode(errors="replace")
