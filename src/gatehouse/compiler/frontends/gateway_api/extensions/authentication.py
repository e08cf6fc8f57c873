"""Translation of AuthenticationFilters to IR: Basic, JWT and OpenID Connect."""

from __future__ import annotations

import base64
import hashlib
import json
import re

import jwt
import msgspec
from cryptography import x509

from gatehouse.apis import core
from gatehouse.apis import nginx_authentication as api
from gatehouse.compiler.frontends.gateway_api import header_names
from gatehouse.compiler.frontends.gateway_api.extensions import nginx_values, oidc
from gatehouse.compiler.frontends.gateway_api.extensions.nginx_values import ValueProblem
from gatehouse.compiler.frontends.gateway_api.inputs import FILTERS, Fetch, Fetched
from gatehouse.compiler.ir.authentication import (
    Authentication,
    Authorization,
    Basic,
    Claim,
    Jwt,
    Requirement,
)
from gatehouse.compiler.ir.gateway import SecretBytes, SecretFile
from gatehouse.dataplane.origin import Origin
from gatehouse.incremental.query import Ask, Key

SECRET_KEY = "auth"  # noqa: S105
"""Key of the Secret entry that holds names with password hashes, or a JSON Web Key Set."""


FETCH_EVERY = 300.0
"""Interval in seconds between two fetches of keys if ``keyCache`` is not set."""

_URL = re.compile(r"https://[^\s/?#@]+(?:[/?][^\s#]*)?")


class Resolved(msgspec.Struct, frozen=True):
    """Result of translating a filter."""

    authentication: Authentication | None = None
    secrets: tuple[SecretFile, ...] = ()
    """Secrets that ``authentication`` refers to."""
    problem: str = ""


def resolve(ask: Ask, key: Key) -> Resolved:
    """Return the authentication of an AuthenticationFilter with its secrets, or the problem."""
    found = ask.read(key)
    if not isinstance(found, api.AuthenticationFilter):
        return Resolved(problem=f"AuthenticationFilter {key[1]}/{key[2]} is invalid")
    try:
        match found.spec:
            case api.AuthenticationFilterSpec(type="Basic", basic=api.BasicAuth() as basic):
                secret = _secret(ask, key[1], basic.secret_ref.name, "spec.basic")
                _check_users(secret.content.reveal())
                basic_auth = Basic(
                    basic.realm, secret.name, Origin(key[0], key[1], key[2], "basic.secretRef")
                )
                return Resolved(basic_auth, (secret,))
            case api.AuthenticationFilterSpec(type="JWT", jwt=api.JwtAuth() as tokens):
                return _tokens(ask, key, tokens)
            case api.AuthenticationFilterSpec(type="OIDC", oidc=api.OidcAuth() as users):
                return _users(ask, key, users)
    except ValueProblem as problem:
        return Resolved(problem=str(problem))
    return Resolved(problem=f"spec.type: {found.spec.type} is not supported")


def _tokens(ask: Ask, key: Key, spec: api.JwtAuth) -> Resolved:
    namespace = key[1]
    if spec.source == "Remote":
        place, content = "spec.jwt.remote", _fetched(ask, namespace, spec)
    elif spec.file is not None:
        place = "spec.jwt.file.secretRef: data[auth]"
        secret = _secret(ask, namespace, spec.file.secret_ref.name, "spec.jwt.file")
        content = secret.content.reveal()
    else:
        raise ValueProblem("spec.jwt.file: must be set for source File")
    keys = _named(_usable_keys(content, place))
    leeway = nginx_values.time(spec.leeway) or 0.0
    authorization = _authorization(spec.authorization, "spec.jwt.authorization")
    origin = Origin(key[0], namespace, key[2], "jwt")
    return Resolved(Jwt(spec.realm, keys.name, leeway, authorization, origin), (keys,))


def _users(ask: Ask, key: Key, spec: api.OidcAuth) -> Resolved:
    namespace, name = key[1], spec.client_secret_ref.name
    where = f"spec.oidc.clientSecretRef: Secret {namespace}/{name}"
    # Secrets written by hand often end in a newline.
    secret = _named(_data(ask, namespace, name, "client-secret", where).rstrip(b"\r\n"))
    if not secret.content.reveal():
        raise ValueProblem(f"{where}: data[client-secret] must not be empty")
    authorities = "".join(
        _ca(ask, namespace, each.name, "spec.oidc.caCertificateRefs")
        for each in spec.ca_certificate_refs
    )
    trust = _named(authorities.encode()) if authorities else None
    revoked = _revoked(ask, namespace, spec.crl_secret_ref) if spec.crl_secret_ref else None
    configuration = msgspec.structs.replace(
        oidc.relying(f"{namespace}/{key[2]}", spec),
        secret=secret.name,
        trust=trust.name if trust is not None else "",
        revoked=revoked.name if revoked is not None else "",
        authorization=_authorization(spec.authorization, "spec.oidc.authorization"),
    )
    return Resolved(
        configuration, tuple(each for each in (secret, trust, revoked) if each is not None)
    )


def _revoked(ask: Ask, namespace: str, reference: api.LocalReference) -> SecretFile:
    where = f"spec.oidc.crlSecretRef: Secret {namespace}/{reference.name}"
    content = _data(ask, namespace, reference.name, "ca.crl", where)
    try:
        x509.load_pem_x509_crl(content)
    except ValueError as error:
        raise ValueProblem(
            f"{where}: data[ca.crl] must be a PEM certificate revocation list"
        ) from error
    return _named(content)


def _authorization(requested: api.Authorization, place: str) -> Authorization:
    """Return the required claims. Raises ValueProblem."""
    for number, rule in enumerate(requested.rules):
        for index, claim in enumerate(rule.claims):
            if why := header_names.problem(claim.proxy_set_header):
                where = f"{place}.rules[{number}].claims[{index}].proxySetHeader"
                raise ValueProblem(f"{where}: {why}")
    requirements = tuple(
        Requirement(
            tuple(
                Claim(each.name, each.values, each.match == "Regex", each.proxy_set_header)
                for each in rule.claims
            ),
            rule.require == "All",
        )
        for rule in requested.rules
    )
    return Authorization(requirements, requested.require == "All")


def fetches(ask: Ask, _: str = "") -> tuple[Fetch, ...]:
    """Return the fetches that all filters need, sorted."""
    found = {ask(_fetch_of, key) for key in ask.read(FILTERS)}
    return tuple(sorted(each for each in found if each is not None))


def _fetch_of(ask: Ask, key: Key) -> Fetch | None:
    found = ask.read(key)
    if not isinstance(found, api.AuthenticationFilter) or found.spec.jwt is None:
        return None
    try:
        return _fetch(ask, key[1], found.spec.jwt)
    except ValueProblem:
        return None


def _fetch(ask: Ask, namespace: str, spec: api.JwtAuth) -> Fetch | None:
    """Return the fetch of a filter's keys; None if it has none. Raises ValueProblem."""
    if spec.source != "Remote":
        return None
    if spec.remote is None:
        raise ValueProblem("spec.jwt.remote: must be set for source Remote")
    if not _URL.fullmatch(spec.remote.uri):
        raise ValueProblem("spec.jwt.remote.uri: must be an https URL")
    trust = "".join(
        _ca(ask, namespace, reference.name, "spec.jwt.remote.caCertificateRefs")
        for reference in spec.remote.ca_certificate_refs
    )
    cached = nginx_values.time(spec.key_cache)
    return Fetch(spec.remote.uri, trust, FETCH_EVERY if cached is None else max(1.0, cached))


def _ca(ask: Ask, namespace: str, name: str, place: str) -> str:
    where = f"{place}: Secret {namespace}/{name}"
    content = _data(ask, namespace, name, "ca.crt", where)
    try:
        x509.load_pem_x509_certificates(content)
    except ValueError as error:
        raise ValueProblem(f"{where}: data[ca.crt] must be PEM certificates") from error
    return content.decode("ascii", "replace")


def _fetched(ask: Ask, namespace: str, spec: api.JwtAuth) -> bytes:
    fetch = _fetch(ask, namespace, spec)
    assert fetch is not None
    found = ask.read(fetch.key)
    if not isinstance(found, Fetched):
        raise ValueProblem(f"spec.jwt.remote.uri: {fetch.url} is not fetched yet")
    if found.problem:
        raise ValueProblem(f"spec.jwt.remote.uri: {fetch.url}: {found.problem}")
    return found.content


def _usable_keys(content: bytes, place: str) -> bytes:
    """Return the JSON Web Key Set with only its supported, complete keys (RFC 7517, section 5).

    Raises ValueProblem if there is none.
    """
    try:
        listed = json.loads(content)["keys"]
    except (ValueError, TypeError, KeyError):
        listed = None
    found = [each for each in listed if _usable(each)] if isinstance(listed, list) else []
    if not found:
        raise ValueProblem(f"{place}: must be a JSON Web Key Set with a supported key")
    return json.dumps({"keys": found}, sort_keys=True).encode()


def _usable(key: object) -> bool:
    if not isinstance(key, dict) or key.get("kty") not in ("oct", "RSA", "EC"):
        return False
    try:
        jwt.PyJWK(key)
    except (jwt.PyJWTError, ValueError, TypeError, KeyError):
        return False
    return True


def _secret(ask: Ask, namespace: str, name: str, place: str) -> SecretFile:
    where = f"{place}.secretRef: Secret {namespace}/{name}"
    return _named(_data(ask, namespace, name, SECRET_KEY, where))


def _data(ask: Ask, namespace: str, name: str, entry: str, where: str) -> bytes:
    """Return an entry of a Secret. Raises ValueProblem."""
    found = ask.read(("Secret", namespace, name))
    if found is None:
        raise ValueProblem(f"{where} not found")
    if not isinstance(found, core.Secret) or entry not in found.data:
        raise ValueProblem(f"{where}: data[{entry}] not found")
    try:
        return base64.b64decode(found.data[entry], validate=True)
    except ValueError as error:
        raise ValueProblem(f"{where}: data must be base64") from error


def _named(content: bytes) -> SecretFile:
    digest = hashlib.sha256(content).hexdigest()[:24]
    return SecretFile(f"auth-{digest}", SecretBytes(content))


def _check_users(content: bytes) -> None:
    lines = [line for line in content.splitlines() if line.strip() and line[:1] != b"#"]
    if not lines or any(b":" not in line for line in lines):
        raise ValueProblem(
            "spec.basic.secretRef: data[auth] must have a line name:hash for each user"
        )
