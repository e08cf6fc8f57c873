"""`gatehouse certs`: made once, renewed in time, trusted by whom trusted the ones before."""

from __future__ import annotations

import asyncio
import base64
import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.x509.oid import ExtendedKeyUsageOID

from fakes.inprocess import Server
from gatehouse.apis import resources
from gatehouse.cli.certs import certs
from gatehouse.cli.errors import CLIError
from gatehouse.standalone import pki
from gatehouse.standalone.state_directory import State

NAMES = ["control.example", "control"]


def load(path: Path) -> x509.Certificate:
    return x509.load_pem_x509_certificate(path.read_bytes())


def run(*arguments: str) -> Result:
    return CliRunner().invoke(certs, list(arguments))


def test_certs_are_created_once_for_requested_names(tmp_path: Path) -> None:
    words = ("--dir", str(tmp_path), "--name", NAMES[0], "--name", NAMES[1], "--address", "::1")
    assert "ca.crt" in run(*words).output
    leaf, authority = load(tmp_path / "tls.crt"), load(tmp_path / "ca.crt")
    leaf.verify_directly_issued_by(authority)
    names = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == NAMES
    assert (tmp_path / "tls.key").stat().st_mode & 0o077 == 0
    assert run(*words).output.strip() == "Nothing to renew."
    assert load(tmp_path / "tls.crt") == leaf
    # Another name is another certificate, of the same authority.
    assert "ca.crt" not in run("--dir", str(tmp_path), "--name", "other.example").output
    assert load(tmp_path / "tls.crt") != leaf
    assert load(tmp_path / "ca.crt") == authority


def test_git_ignores_new_directories_with_keys(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    run("--dir", str(tmp_path / "channel"))
    authority = ("--load-balancer", "edge/front", "--dir", str(tmp_path / "channel"))
    run("machine", "lb-1", *authority, "--out", str(tmp_path / "lb-1"))
    (tmp_path / "own").mkdir()
    run("machine", "lb-1", *authority, "--out", str(tmp_path / "own"))
    assert {path.name for path in tmp_path.rglob("tls.key")} == {"tls.key"}
    status = ["git", "-C", str(tmp_path), "status", "--porcelain"]
    output = subprocess.run(status, check=True, capture_output=True, text=True).stdout
    # The directory of a user stays as it is.
    assert output.split() == ["??", "own/"]


def test_expiring_certificates_are_renewed_and_still_trusted(tmp_path: Path) -> None:
    now = datetime.now(UTC)
    pki.ensure_channel(tmp_path, NAMES, [], now)
    old = load(tmp_path / "ca.crt")
    later = now + pki.LEAF_LIFE - timedelta(days=30)
    assert list(pki.ensure_channel(tmp_path, NAMES, [], later)) == ["tls.crt"]
    much_later = now + pki.CA_LIFE - timedelta(days=30)
    assert list(pki.ensure_channel(tmp_path, NAMES, [], much_later)) == ["ca.crt", "tls.crt"]
    assert load(tmp_path / "ca.crt") != old
    # Who only knows the authority as it was takes the new certificate too.
    load(tmp_path / "tls.crt").verify_directly_issued_by(old)


URI = "spiffe://gatehouse.dev/load-balancer/edge/front/lb-1"


def names_of(path: Path) -> tuple[x509.Name, list[str], bool]:
    result = load(path)
    names = result.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    uris = names.value.get_values_for_type(x509.UniformResourceIdentifier)
    assert len(list(names.value)) == len(uris)
    return result.subject, uris, names.critical


def test_machine_certificate_contains_only_machine_identity(tmp_path: Path) -> None:
    authority, out = tmp_path / "authority", tmp_path / "lb-1"
    run("--dir", str(authority))
    words = ("machine", "lb-1", "--load-balancer", "edge/front", "--dir", str(authority))
    first = run(*words, "--out", str(out))
    assert first.exit_code == 0, first.output
    assert names_of(out / "tls.crt") == (x509.Name([]), [URI], True)
    leaf = load(out / "tls.crt")
    leaf.verify_directly_issued_by(load(out / "ca.crt"))
    usage = leaf.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert list(usage) == [ExtendedKeyUsageOID.CLIENT_AUTH]
    assert (out / "tls.key").stat().st_mode & 0o077 == 0
    assert run(*words, "--out", str(out)).output.strip() == "Nothing to renew."
    other = ("machine", "lb-1", "--load-balancer", "edge/other", *words[4:], "--out", str(out))
    assert "tls.crt" in run(*other).output
    assert names_of(out / "tls.crt")[1] == [URI.replace("front", "other")]
    later = datetime.now(UTC) + pki.LEAF_LIFE - timedelta(days=30)
    written = pki.ensure_machine(authority, out, URI.replace("front", "other"), later)
    assert list(written) == ["tls.crt"]


def rsa_key() -> bytes:
    key = rsa.generate_private_key(65537, 2048)
    pem, pkcs8 = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    return key.private_bytes(pem, pkcs8, serialization.NoEncryption())


@pytest.mark.parametrize(
    ("file", "content"),
    [("ca.crt", b"no PEM"), ("ca.key", b"no PEM"), ("ca.key", rsa_key())],
    ids=["certificate", "key", "other key"],
)
def test_ca_that_cannot_sign_leaves_no_directory(file: str, content: bytes, tmp_path: Path) -> None:
    authority, out = tmp_path / "authority", tmp_path / "lb-1"
    run("--dir", str(authority))
    valid = (authority / file).read_bytes()
    words = ("machine", "lb-1", "--load-balancer", "edge/front", "--dir", str(authority))
    (authority / file).write_bytes(content)
    result = run(*words, "--out", str(out))
    assert (result.exit_code, type(result.exception)) == (1, CLIError), result.output
    assert not out.exists()
    (authority / file).write_bytes(valid)
    assert run(*words, "--out", str(out)).exit_code == 0
    assert (out / ".gitignore").read_text() == "*\n"


async def test_machine_certificate_is_signed_by_ca_in_secret(tmp_path: Path) -> None:
    server = Server(State(tmp_path / "s"))
    async with server.running(), server.client():
        there = ("--secret", "default/channel", "--kubeconfig", str(server.state.kubeconfig))
        await asyncio.to_thread(run, *there)
        words = ("machine", "lb-1", "--load-balancer", "edge/front", *there)
        done = await asyncio.to_thread(run, *words, "--out", str(tmp_path / "out"))
        assert done.exit_code == 0, done.output
        assert names_of(tmp_path / "out" / "tls.crt")[1] == [URI]
        assert not (tmp_path / "out" / "ca.key").exists()


async def test_certs_are_stored_in_secrets(tmp_path: Path) -> None:
    server = Server(State(tmp_path / "s"))
    async with server.running(), server.client() as client:
        words = ("--secret", "default/channel", "--kubeconfig", str(server.state.kubeconfig))
        first = await asyncio.to_thread(run, *words)
        assert first.exit_code == 0, first.output
        assert "tls.crt" in first.output
        secret = await client.get(resources.SECRETS, "channel", "default")
        assert (secret["type"], sorted(secret["data"])) == (
            "kubernetes.io/tls",
            ["ca.crt", "tls.crt", "tls.key"],
        )
        authority = await client.get(resources.SECRETS, "channel-ca", "default")
        assert sorted(authority["data"]) == ["ca.crt", "ca.key"]
        again = await asyncio.to_thread(run, *words)
        assert again.output.strip() == "Nothing to renew."
        broken = {**secret, "data": {**secret["data"], "tls.crt": base64.b64encode(b"x").decode()}}
        broken.pop("metadata")
        current = await client.get(resources.SECRETS, "channel", "default")
        await client.update(resources.SECRETS, {**broken, "metadata": current["metadata"]})
        mended = await asyncio.to_thread(run, *words)
        assert "tls.crt" in mended.output
        assert "ca.crt" not in mended.output


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "exactly one of --dir and --secret"),
        (("--dir", "x", "--secret", "a/b"), "exactly one of --dir and --secret"),
        (("--secret", "nonsense"), "nonsense must be namespace/name"),
        (("machine", "lb-1"), "--load-balancer"),
        (("machine", "lb-1", "--load-balancer", "a/b"), "exactly one of --dir and --secret"),
        (
            ("machine", "lb-1", "--load-balancer", "a", "--dir", "x"),
            "invalid namespace, name or host",
        ),
        (("machine", "lb/1", "--load-balancer", "a/b", "--dir", "x"), "is not of the form"),
        (
            ("machine", "Lb", "--load-balancer", "a/b", "--dir", "x"),
            "invalid namespace, name or host",
        ),
        (("machine", "lb-1", "--load-balancer", "a/b", "--dir", "none"), "none/ca.crt"),
    ],
)
def test_certs_reports_error(
    words: tuple[str, ...], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = run(*words)
    assert result.exit_code != 0
    assert message in result.output + str(result.exception)
