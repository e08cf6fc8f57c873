"""Kubeconfig files and Pod environments, and the messages when they are wrong."""

from __future__ import annotations

import base64
import stat
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from gatehouse.kube import config
from gatehouse.kube.credentials import CredentialError, ExecPlugin, ExecToken, TokenFile


def kubeconfig(directory: Path, cluster: dict[str, Any], user: dict[str, Any]) -> Path:
    path = directory / "kubeconfig"
    document = {
        "current-context": "here",
        "contexts": [
            {"name": "other", "context": {"cluster": "c2", "user": "u"}},
            {"name": "here", "context": {"cluster": "c", "user": "u", "namespace": "ns"}},
        ],
        "clusters": [
            {"name": "c2", "cluster": {"server": "https://other"}},
            {"name": "c", "cluster": {"server": "https://api:6443/", **cluster}},
        ],
        "users": [{"name": "u", "user": user}],
    }
    path.write_text(yaml.safe_dump(document))
    return path


def key_pair() -> tuple[bytes, bytes]:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "someone")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), 1)
        .not_valid_before(now)
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    private = key.private_bytes(
        pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return certificate.public_bytes(pem), private


async def test_kubeconfig_current_context_is_used(tmp_path: Path) -> None:
    result = config.from_kubeconfig(kubeconfig(tmp_path, {}, {"token": "t"}))
    assert (result.server, result.namespace) == ("https://api:6443", "ns")
    assert await result.tokens.token() == "t"
    assert result.verify
    assert config.from_kubeconfig(tmp_path / "kubeconfig", "other").server == "https://other"


def test_inline_and_file_certificates_are_loaded(tmp_path: Path) -> None:
    cert, key = key_pair()
    (tmp_path / "client.key").write_bytes(key)
    inline = base64.b64encode(cert).decode()
    path = kubeconfig(
        tmp_path,
        {"certificate-authority-data": inline},
        {"client-certificate-data": inline, "client-key": "client.key"},
    )
    result = config.from_kubeconfig(path)
    assert (result.ca, result.client_cert, result.client_key) == (cert, cert, key)
    context = result.ssl_context()
    assert context is not None
    assert [entry["subject"] for entry in context.get_ca_certs()] == [
        ((("commonName", "someone"),),)
    ]
    assert "BEGIN" not in repr(result)


def test_server_verification_is_skipped_only_when_configured(tmp_path: Path) -> None:
    path = kubeconfig(tmp_path, {"insecure-skip-tls-verify": True}, {})
    context = config.from_kubeconfig(path).ssl_context()
    assert context is not None
    assert not context.check_hostname
    path = kubeconfig(tmp_path, {}, {})
    context = config.from_kubeconfig(path).ssl_context()
    assert context is not None
    assert context.check_hostname


@pytest.mark.parametrize(
    ("cluster", "user", "message"),
    [
        ({"server": "api:6443"}, {}, "must be an http"),
        ({"certificate-authority-data": "!"}, {}, "certificate-authority-data must be base64"),
        ({"certificate-authority": "missing.pem"}, {}, "certificate-authority: .*missing.pem"),
        ({}, {"exec": {"args": []}}, "user.exec.command is not set"),
    ],
)
def test_invalid_kubeconfig_is_reported_with_path_and_field(
    tmp_path: Path, cluster: dict[str, Any], user: dict[str, Any], message: str
) -> None:
    path = kubeconfig(tmp_path, cluster, user)
    with pytest.raises(config.ConfigError, match=message) as caught:
        config.from_kubeconfig(path)
    assert str(path) in str(caught.value)


def test_unknown_context_and_missing_file_are_reported(tmp_path: Path) -> None:
    path = kubeconfig(tmp_path, {}, {})
    with pytest.raises(config.ConfigError, match="contexts: 'nowhere' not found"):
        config.from_kubeconfig(path, "nowhere")
    with pytest.raises(config.ConfigError, match="absent"):
        config.from_kubeconfig(tmp_path / "absent")


def test_invalid_certificates_raise_configuration_error(tmp_path: Path) -> None:
    inline = base64.b64encode(b"no pem").decode()
    path = kubeconfig(tmp_path, {}, {"client-certificate-data": inline})
    with pytest.raises(config.ConfigError, match="TLS credentials for https://api:6443"):
        config.from_kubeconfig(path).ssl_context()


async def test_in_cluster_configuration_uses_service_account_files(tmp_path: Path) -> None:
    (tmp_path / "ca.crt").write_bytes(b"ca")
    (tmp_path / "token").write_text("t")
    (tmp_path / "namespace").write_text("ns")
    environ = {"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "443"}
    result = config.in_cluster(environ, tmp_path)
    assert (result.server, result.namespace) == ("https://[fd00::1]:443", "ns")
    assert await result.tokens.token() == "t"


async def test_token_file_is_read_once_a_minute(tmp_path: Path) -> None:
    now = 0.0
    file = tmp_path / "token"
    file.write_text("one")
    source = TokenFile(file, clock=lambda: now)
    assert await source.token() == "one"
    file.write_text("two")
    now = 59.0
    assert await source.token() == "one"
    now = 60.0
    assert await source.token() == "two"
    file.unlink()
    now = 120.0
    with pytest.raises(CredentialError, match=str(file)):
        await source.token()


def plugin(directory: Path, script: str) -> ExecPlugin:
    path = directory / "plugin"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return ExecPlugin(command=str(path), env=(("WHO", "me"),))


@pytest.mark.process
async def test_exec_plugin_token_is_cached_until_shortly_before_expiry(tmp_path: Path) -> None:
    counter = tmp_path / "runs"
    script = f"""echo run >> {counter}
echo '{{"status":{{"token":"'$WHO'","expirationTimestamp":"1970-01-01T01:00:00Z"}}}}'"""
    now = 0.0
    source = ExecToken(plugin(tmp_path, script), clock=lambda: now)
    assert await source.token() == "me"
    now = 3569.0
    assert await source.token() == "me"
    assert counter.read_text().count("run") == 1
    now = 3571.0
    await source.token()
    assert counter.read_text().count("run") == 2


@pytest.mark.process
@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("exit 3", "status 3"),
        ("echo nonsense", "invalid output"),
        ("echo '{\"status\":{}}'", "no token"),
    ],
)
async def test_failed_exec_plugin_is_reported_by_name(
    tmp_path: Path, script: str, message: str
) -> None:
    with pytest.raises(CredentialError, match=message):
        await ExecToken(plugin(tmp_path, script)).token()
    with pytest.raises(CredentialError, match="/nonexistent"):
        await ExecToken(ExecPlugin("/nonexistent")).token()
