"""Names and passwords, with hashes as `htpasswd` and `openssl passwd` make them."""

from __future__ import annotations

import base64

import aiohttp
import pytest

from fakes.authenticator_process import AuthenticatorProcess
from gatehouse.sidecars.authenticator import basic_auth, config, password_hashes
from gatehouse.sidecars.authenticator.config import Realm

LONG = "a much longer password than sixteen bytes"

HASHED = [
    ("", "$apr1$8sFt66rZ$QkOfebwJVEOpEluExHsip."),
    ("a", "$apr1$8sFt66rZ$ZQyG/P2SewAXpDgC1ke9d0"),
    ("secret", "$apr1$8sFt66rZ$eup.HOtZcQ/VrnApBM3rR/"),
    (LONG, "$apr1$8sFt66rZ$W2FL3oYqsNugEfuvgC7LZ0"),
    ("secret", "{SHA}5en6G6MezRroT3XKqkdPOmY/BfQ="),
    ("secret", "{SSHA}" + base64.b64encode(
        bytes.fromhex("8152bc582f58c854f580cb101d3182813dec4afe") + b"salt").decode()),
    ("secret", "{PLAIN}secret"),
    ("secret", "$1$abcdefgh$cHJi5PXp/ki/ktXzqlk6I1"),
    ("secret", "$5$abcdefgh$gruCpC7VkOTspMQTTSAR8mtlO9Upms.fwqE5y16JVM."),
    ("secret", "$6$abcdefgh$ltjgWl6579NluT/Vi1nwEvcil.G5Nbc4NiXZaNGStk8PSwGfQv72N2CKPPrVACtLtip/cZ"
               "/1GM/O6IND4WQhG."),
    ("secret", "$2y$05$abcdefghijklmnopqrstuuOQiyCxlgf/oeuTqixKmWdcYUh4Hjl0a"),
    ("secret", "$y$j9T$abcdefgh$IUWJt2doU4Kf6E/JP1UkAT3S5O3Q7SSA8SJirXIlEu9"),
]  # fmt: skip


@pytest.mark.parametrize(("password", "hashed"), HASHED)
def test_hash_matches_only_its_password(password: str, hashed: str) -> None:
    assert password_hashes.matches_hash(hashed.encode(), password.encode())
    for other in (f"{password}x", password[:-1] + "\0", "SECRET", f"{password}\0"):
        assert not password_hashes.matches_hash(hashed.encode(), other.encode())


@pytest.mark.parametrize("hashed", ["{SSHA}?", "", "$9$a$b", "*", "x", "$2y$05$short"])
def test_malformed_hash_matches_no_password(hashed: str) -> None:
    for password in ("", "secret", hashed):
        try:
            assert not password_hashes.matches_hash(hashed.encode(), password.encode())
        except password_hashes.UncheckableError:
            continue


def test_password_file_is_parsed_like_nginx() -> None:
    text = b"# x:y\n\nme:{SHA}a=\n  you:$apr1$x$y:comment\nme:second\nbad\np:{PLAIN}a:b\n:none\n"
    assert password_hashes.parse_password_file(text) == {
        b"me": b"{SHA}a=", b"you": b"$apr1$x$y", b"bad": b"", b"p": b"{PLAIN}a:b",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("header", "credentials"),
    [
        ("Basic bWU6c2VjcmV0", (b"me", b"secret")),
        ("basic  bWU6YTpi", (b"me", b"a:b")),
        ("Basic bWU=", None),
        ("Basic ?", None),
        ("Basic \xff", None),
        ("Bearer bWU6c2VjcmV0", None),
        ("", None),
    ],
)
def test_credentials_are_read(header: str, credentials: tuple[bytes, bytes] | None) -> None:
    assert basic_auth.credentials(header) == credentials


async def test_basic_authentication_is_served_by_process(
    authenticator: AuthenticatorProcess,
) -> None:
    configuration = authenticator.configuration()
    described = Realm("r", "shop/members", 'the "members"', "users")
    (configuration / config.PASSWORDS).write_bytes(config.encode_parties([described]))
    lines = [f"user{number}:{hashed}" for number, (_, hashed) in enumerate(HASHED)]
    (configuration / "users").write_text("\n".join([*lines, "broken:$9$x"]))
    assert await authenticator.serve(configuration) == ""
    path = str(authenticator.home / config.REQUESTS_SOCKET)
    async with aiohttp.ClientSession(connector=aiohttp.UnixConnector(path)) as http:

        async def asked(name: str, password: str) -> tuple[int, str]:
            encoded = base64.b64encode(f"{name}:{password}".encode()).decode()
            url, headers = "http://authenticator/r/admit?/x", {"Authorization": f"Basic {encoded}"}
            async with http.post(url, headers=headers) as response:
                return response.status, response.headers.get("WWW-Authenticate", "")

        for _ in range(2):
            for number, (password, _) in enumerate(HASHED):
                assert (await asked(f"user{number}", password))[0] == 200
                assert (await asked(f"user{number}", f"{password}?"))[0] == 401
        refused = (401, 'Basic realm="the \\"members\\""')
        assert await asked("nobody", "secret") == refused
        assert await asked("broken", "secret") == refused
        async with http.get("http://authenticator/r/check") as response:
            assert response.status == 503
    assert "filter shop/members: a password cannot be checked" in authenticator.log
