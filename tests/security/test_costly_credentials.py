"""Credentials that take long to load, or to compare with those of a request.

Who: the author of a Secret in one namespace. Through what: keys of certificates, JSON Web Key Sets
and password files, whose size and cost their author chooses. What must hold: one of them takes the
controller, which compiles the objects of all tenants in turn, and the proxies, whose workers serve
all clients in turn, less than a second.
"""

from __future__ import annotations

import base64
import datetime
import json
import time
from collections.abc import Callable
from typing import Any

import jwt
import msgspec
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.serialization import Encoding

from fakes.one_route import BACKEND, conditions, engine
from gatehouse.compiler.frontends import gateway_api, pem, rsa_keys
from gatehouse.compiler.frontends.gateway_api.listeners import certificates
from gatehouse.compiler.ir.gateway import Certificate
from gatehouse.dataplane import key_sizes
from gatehouse.dataplane.origin import Origin
from gatehouse.sidecars.authenticator.config import Party
from gatehouse.sidecars.authenticator.id_tokens import verify_id_token

Object = dict[str, Any]
OWNER = Origin("Secret", "n", "s")


def private_key(*exponents: int) -> rsa.RSAPrivateKey:
    """Return a key of two Mersenne primes, because a search for primes would take a minute."""
    p, q = (2**exponent - 1 for exponent in exponents)
    d = pow(65537, -1, (p - 1) * (q - 1))
    public = rsa.RSAPublicNumbers(65537, p * q)
    numbers = rsa.RSAPrivateNumbers(p, q, d, d % (p - 1), d % (q - 1), pow(q, -1, p), public)
    return numbers.private_key(unsafe_skip_rsa_key_validation=True)


LARGE = private_key(3217, 4253)
"""7,470 bits."""


def certificate(key: rsa.RSAPublicKey) -> bytes:
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "a")])
    now = datetime.datetime.now(datetime.UTC)
    until = now + datetime.timedelta(days=1)
    builder = x509.CertificateBuilder(name, name, key, 1, now, until)
    return builder.sign(ec.generate_private_key(ec.SECP256R1()), hashes.SHA256()).public_bytes(
        Encoding.PEM
    )


def cpu_seconds(action: Callable[[], object]) -> float:
    begun = time.process_time()
    action()
    return time.process_time() - begun


def test_large_key_of_a_certificate_takes_no_longer_than_a_handshake() -> None:
    chain, key = certificate(LARGE.public_key()), pem.encode_private_key(LARGE)
    pairs: list[Certificate | str] = []
    loading = cpu_seconds(lambda: pairs.append(certificates.key_pair(chain, key, origin=OWNER)))
    assert isinstance(pairs[0], Certificate)
    handshake = cpu_seconds(lambda: LARGE.sign(b"", padding.PKCS1v15(), hashes.SHA256()))
    # A test of its primes takes as long as a hundred signatures.
    assert loading < 10 * handshake


@pytest.mark.parametrize("exponents", [(521, 1279), (4253, 4423)])
def test_certificate_with_a_key_of_another_size_is_refused(exponents: tuple[int, int]) -> None:
    key = private_key(*exponents)
    chain = certificate(key.public_key())
    result = certificates.key_pair(chain, pem.encode_private_key(key), origin=OWNER)
    assert result == "tls.crt: the RSA key must have 2048 to 8192 bits"


P, Q = 2**1279 - 1, 2**2203 - 1
CHANGES: list[dict[str, int]] = [
    {"d": 3},
    {"dmp1": 1},
    {"dmq1": 1},
    {"iqmp": 1},
    {"p": Q, "q": P},
    {"p": 1, "q": P * Q},
    {"p": 1, "q": 1},
    {"d": 1 << 4_000_000},
]


@pytest.mark.parametrize("change", CHANGES)
def test_numbers_that_do_not_fit_are_no_key(change: dict[str, int]) -> None:
    """A proxy would reject such a key, or fail in each handshake."""
    numbers = private_key(1279, 2203).private_numbers()
    assert rsa_keys.is_consistent(numbers)
    names = ("p", "q", "d", "dmp1", "dmq1", "iqmp", "public_numbers")
    changed = {name: getattr(numbers, name) for name in names} | change
    assert not rsa_keys.is_consistent(rsa.RSAPrivateNumbers(**changed))


def number(value: int) -> str:
    content = value.to_bytes((value.bit_length() + 7) // 8, "big")
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()


PUBLIC = {"kty": "RSA", "kid": "a", "alg": "RS256", "n": number(P * Q), "e": "AQAB"}
# Libraries search for the factors of such a modulus, for hours if it has the size of a Secret.
PRIVATE = PUBLIC | {"d": number(3)}


def filtered(spec: Object, content: bytes) -> tuple[str, list[bytes]]:
    """Compile a route with a filter. Return its conditions and the secrets of the data plane."""
    key = ("AuthenticationFilter", "n", "f")
    reference = {"group": "gateway.nginx.org", "kind": "AuthenticationFilter", "name": "f"}
    filters = [{"type": "ExtensionRef", "extensionRef": reference}]
    compiler = engine("HTTPRoute", [{"filters": filters, "backendRefs": [BACKEND]}], (key, spec))
    secret: Object = {
        "metadata": {"name": "s", "namespace": "n"},
        "data": {"auth": base64.b64encode(content).decode()},
    }
    decoded = gateway_api.decode_gateway_api_object("Secret", secret)
    compiler.commit({("Secret", "n", "s"): decoded})
    with compiler.compile() as ask:
        gateway = ask(gateway_api.compile_gateway, ("Gateway", "n", "gw"))
        assert gateway is not None
        secrets = [secret.content.reveal() for secret in gateway.secrets]
        return conditions(ask, "HTTPRoute"), secrets


def tokens(keys: bytes) -> tuple[str, list[bytes]]:
    spec = {"type": "JWT", "jwt": {"source": "File", "realm": "r"}}
    spec["jwt"] |= {"file": {"secretRef": {"name": "s"}}}  # type: ignore[operator]
    return filtered(spec, keys)


def test_only_what_verifies_signatures_is_read_of_a_key_set() -> None:
    _, (secret,) = tokens(msgspec.json.encode({"keys": [PRIVATE]}))
    assert json.loads(secret) == {"keys": [PUBLIC]}


LONG = "A" * (key_sizes._MAX_NUMBER_CHARACTERS + 1)


@pytest.mark.parametrize(
    "content",
    [
        msgspec.json.encode({"keys": [PUBLIC | {"n": LONG}, PUBLIC | {"e": LONG}]}),
        b'{"keys":' + b"[" * 100_000,
    ],
    ids=["long numbers", "nesting"],
)
def test_key_set_of_any_size_is_refused_in_no_time(content: bytes) -> None:
    text, secrets = tokens(content)
    assert "must be a JSON Web Key Set with a supported key" in text
    assert secrets == []


def test_private_keys_of_a_provider_are_read_as_public_ones() -> None:
    """The authenticator, which serves all filters of a data plane, reads them at each login."""
    now = int(time.time())
    claims = {"iss": "https://i", "sub": "u", "aud": "c", "exp": now + 60, "iat": now}
    token = jwt.encode(claims, private_key(1279, 2203), "RS256", {"kid": "a"})
    texts = ("name", "filter", "metadata_url", "secret", "trust", "callback", "cookie")
    values = {"issuer": "https://i", "client_id": "c", "timeout": 1.0}
    party = msgspec.convert(dict.fromkeys(texts, "x") | values, Party)
    assert verify_id_token(party, token, [PRIVATE], None)["sub"] == "u"


COSTLY = [
    b"$2y$13$" + b"a" * 53,
    b"$2b$31$" + b"a" * 53,
    b"$5$rounds=200001$salt$hash",
    b"$6$rounds=999999999$salt$hash",
    b"$6$rounds=4294967296000$salt$hash",
    b"$6$rounds= 999999999$salt$hash",
    b"$5$rounds=" + b"9" * 5000 + b"$salt$hash",
    b"$y$jFT$salt$hash",
    b"$y$j9z$salt$hash",
    b"$y$j9T0$salt$hash",
    b"$gy$jFT$salt$hash",
    b"$7$EU..../....salt$hash",
    b"$sha1$400000000$salt$hash",
    b"$md5,rounds=4000000000$salt$hash",
    b"_zzzzsalthash",
    b"$2y$012$" + b"a" * 53,
]
CHEAP = [
    b"$2y$12$" + b"a" * 53,
    b"$2a$05$" + b"a" * 53,
    b"$5$salt$hash",
    b"$6$rounds=200000$salt$hash",
    b"$y$j9T$salt$hash",
    b"$y$j75$salt$hash",
    b"$apr1$salt$hash",
    b"$1$salt$hash",
    b"{SSHA}aaaa",
    b"{PLAIN}$2y$31$",
    b"abJnggxhB/yWI",
    b"",
]
BASIC = {"type": "Basic", "basic": {"realm": "r", "secretRef": {"name": "s"}}}


@pytest.mark.parametrize("hashed", COSTLY)
def test_password_hash_that_takes_long_is_refused(hashed: bytes) -> None:
    text, secrets = filtered(BASIC, b"# users\nalice:{SHA}aaaa\n\nbob:" + hashed + b":a comment\n")
    assert "spec.basic.secretRef: data[auth]: user 2: " in text
    assert b"bob" not in b"".join(secrets)


@pytest.mark.parametrize("hashed", CHEAP)
def test_password_hash_that_takes_a_moment_is_accepted(hashed: bytes) -> None:
    text, secrets = filtered(BASIC, b"bob:" + hashed)
    assert "Accepted=True" in text
    assert secrets == [b"bob:" + hashed]
