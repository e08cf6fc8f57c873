"""External machines are identified by valid certificates, never by tokens."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import grpc
import grpc.aio
import pytest
from cryptography import x509

from fakes.agent_control_plane import GATEWAY, ControlPlane
from fakes.agent_v3 import Claimant
from fakes.authority import Authority
from fakes.loopback import free_port
from fakes.patience import until
from gatehouse.dataplane.file_set import File, FileSet, base64_sha256
from gatehouse.transports.agents.certificate_auth import CertificateAuthenticator
from gatehouse.transports.agents.token_auth import Denied, Identity
from gatehouse.transports.server import AuthenticationUnavailable

BALANCER = "ExternalLoadBalancer edge/front"
URI = "spiffe://gatehouse.dev/load-balancer/edge/front/lb-1"
OURS = FileSet([File.make("gatehouse/http.conf", "of the machines")])
PODS = FileSet([File.make("gatehouse/http.conf", "of the Pods")])


def identify(uri: str) -> Identity:
    if uri.endswith("/gone"):
        raise AuthenticationUnavailable("it has no such host")
    if uri != URI:
        raise Denied(f"{uri} is nobody")
    return Identity(gateway=BALANCER, instance="lb-1")


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path, "machines")


Shown = Callable[..., tuple[Path, Path]]


@pytest.fixture
async def outside(control_plane: ControlPlane, authority: Authority) -> int:
    control_plane.server.publish(BALANCER, OURS)
    control_plane.server.publish(GATEWAY, PODS)
    return await control_plane.server.start_outside(
        f"127.0.0.1:{free_port()}",
        control_plane.cert,
        control_plane.key,
        authority.file,
        identify,
    )


@pytest.fixture
async def control_plane(tmp_path: Path) -> AsyncIterator[ControlPlane]:
    async with ControlPlane(tmp_path / "control-plane") as plane:
        yield plane


async def asked(
    plane: ControlPlane, port: int, digest: str, *files: Path, token: str = "none"
) -> bytes | str:
    """Return a file, or the status code of the denial."""
    pair = [path.read_bytes() for path in reversed(files)]
    credentials = grpc.ssl_channel_credentials(plane.cert.read_bytes(), *pair)
    names = (("grpc.ssl_target_name_override", "control.plane"),)
    async with grpc.aio.secure_channel(f"127.0.0.1:{port}", credentials, names) as channel:
        try:
            return await Claimant(channel, token, {}).file(digest)
        except grpc.aio.AioRpcError as error:
            return error.code().name


OWN, OTHERS = base64_sha256(b"of the machines"), base64_sha256(b"of the Pods")


async def test_machine_certificate_grants_access_to_its_files_only(
    control_plane: ControlPlane, outside: int, authority: Authority
) -> None:
    files = authority.issue("lb-1", x509.UniformResourceIdentifier(URI))
    assert await asked(control_plane, outside, OWN, *files) == b"of the machines"
    assert await asked(control_plane, outside, OTHERS, *files) == "NOT_FOUND"
    # A token of a Pod is worth nothing here, and the certificate nothing at the Pods' door.
    good = "good:pod-1"
    assert await asked(control_plane, outside, OTHERS, *files, token=good) == "NOT_FOUND"
    assert await asked(control_plane, outside, OTHERS, token=good) == "UNAVAILABLE"
    assert await asked(control_plane, control_plane.port, OWN, *files) == "UNAUTHENTICATED"
    assert await asked(control_plane, control_plane.port, OTHERS, token=good) == b"of the Pods"


@pytest.mark.parametrize(
    ("names", "code"),
    [
        ((), "UNAUTHENTICATED"),
        ((x509.DNSName(URI.replace(":", "").replace("/", "")),), "UNAUTHENTICATED"),
        ((x509.UniformResourceIdentifier("spiffe://else"),), "UNAUTHENTICATED"),
        ((x509.UniformResourceIdentifier(f"{URI}/gone"),), "UNAVAILABLE"),
        (
            (x509.UniformResourceIdentifier(URI), x509.UniformResourceIdentifier("spiffe://b")),
            "UNAUTHENTICATED",
        ),
    ],
)
async def test_certificate_must_name_exactly_one_machine(
    control_plane: ControlPlane,
    outside: int,
    authority: Authority,
    names: tuple[x509.GeneralName, ...],
    code: str,
) -> None:
    assert await asked(control_plane, outside, OWN, *authority.issue("x", *names)) == code


async def test_foreign_and_expired_certificates_fail_handshake(
    control_plane: ControlPlane, outside: int, authority: Authority, tmp_path: Path
) -> None:
    (tmp_path / "strange").mkdir()
    stranger = Authority(tmp_path / "strange", "machines")
    name = x509.UniformResourceIdentifier(URI)
    assert await asked(control_plane, outside, OWN, *stranger.issue("s", name)) == "UNAVAILABLE"
    old = authority.issue("old", name, ends=timedelta(minutes=-1))
    assert await asked(control_plane, outside, OWN, *old) == "UNAVAILABLE"


async def test_open_connection_loses_identity_when_certificate_expires(
    authority: Authority,
) -> None:
    authenticator = CertificateAuthenticator(identify)
    name = x509.UniformResourceIdentifier(URI)
    cert, _ = authority.issue("soon", name, ends=timedelta(seconds=2))
    peer = {"x509_pem_cert": [cert.read_bytes()]}
    result = authenticator.identify(peer)
    assert (result.gateway, result.instance) == (BALANCER, "lb-1")
    left = result.expires - time.time()
    assert 0 < left <= 2, datetime.now(UTC)

    def denial() -> str:
        try:
            authenticator.identify(peer)
        except Denied as error:
            return str(error)
        return ""

    assert "has expired" in await until(denial)
    assert time.time() >= result.expires
