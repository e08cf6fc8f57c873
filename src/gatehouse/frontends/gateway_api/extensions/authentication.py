"""AuthenticationFilter in the IR's form: passwords, and signed tokens with what they must claim."""

from __future__ import annotations

import base64
import hashlib
import json

import jwt
import msgspec

from gatehouse.apis import core
from gatehouse.apis import nginx_gateway as api
from gatehouse.frontends.gateway_api.extensions import values
from gatehouse.frontends.gateway_api.extensions.values import ValueProblem
from gatehouse.ir.authentication import (
    Authentication,
    Authorization,
    Basic,
    Claim,
    Jwt,
    Requirement,
)
from gatehouse.ir.gateway import SecretBytes, SecretFile
from gatehouse.query import Ask, Key

SECRET_KEY = "auth"  # noqa: S105
"""The entry of a Secret that holds names with passwords, or a JSON Web Key Set."""


class Resolved(msgspec.Struct, frozen=True):
    """What a filter asks for with the secret it needs; or what is wrong with it."""

    authentication: Authentication | None = None
    secret: SecretFile | None = None
    problem: str = ""


def resolve(ask: Ask, key: Key) -> Resolved:
    """Give what an AuthenticationFilter asks for."""
    found = ask.read(key)
    if not isinstance(found, api.AuthenticationFilter):
        return Resolved(problem=f"AuthenticationFilter {key[1]}/{key[2]} cannot be read")
    try:
        match found.spec:
            case api.AuthenticationFilterSpec(type="Basic", basic=api.BasicAuth() as basic):
                secret = _secret(ask, key[1], basic.secret_ref.name, "spec.basic")
                _check_users(secret.content.reveal())
                return Resolved(Basic(basic.realm, secret.name), secret)
            case api.AuthenticationFilterSpec(type="JWT", jwt=api.JwtAuth() as tokens):
                return _tokens(ask, key[1], tokens)
    except ValueProblem as problem:
        return Resolved(problem=str(problem))
    return Resolved(problem=f"spec.type {found.spec.type}: is not served")


def _tokens(ask: Ask, namespace: str, spec: api.JwtAuth) -> Resolved:
    if spec.source != "File" or spec.file is None:
        raise ValueProblem("spec.jwt.source: only File is served")
    secret = _secret(ask, namespace, spec.file.secret_ref.name, "spec.jwt.file")
    keys = _named(_usable_keys(secret.content.reveal()))
    asked = spec.authorization
    requirements = tuple(
        Requirement(
            tuple(
                Claim(each.name, each.values, each.match == "Regex", each.proxy_set_header)
                for each in rule.claims
            ),
            rule.require == "All",
        )
        for rule in asked.rules
    )
    wanted = Jwt(
        spec.realm,
        keys.name,
        values.time(spec.leeway) or 0.0,
        Authorization(requirements, asked.require == "All"),
    )
    return Resolved(wanted, keys)


def _usable_keys(content: bytes) -> bytes:
    """Give the keys of a set that are of a known kind, and whole (RFC 7517, section 5)."""
    try:
        listed = json.loads(content)["keys"]
    except (ValueError, TypeError, KeyError):
        listed = None
    found = [each for each in listed if _usable(each)] if isinstance(listed, list) else []
    if not found:
        raise ValueProblem(
            "spec.jwt.file.secretRef: its data[auth] is no JSON Web Key Set with a usable key"
        )
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
    found = ask.read(("Secret", namespace, name))
    where = f"{place}.secretRef: Secret {namespace}/{name}"
    if found is None:
        raise ValueProblem(f"{where} does not exist")
    if not isinstance(found, core.Secret) or SECRET_KEY not in found.data:
        raise ValueProblem(f"{where} has no data[{SECRET_KEY}]")
    try:
        content = base64.b64decode(found.data[SECRET_KEY], validate=True)
    except ValueError as error:
        raise ValueProblem(f"{where}: data is not base64") from error
    return _named(content)


def _named(content: bytes) -> SecretFile:
    digest = hashlib.sha256(content).hexdigest()[:24]
    return SecretFile(f"auth-{digest}", SecretBytes(content))


def _check_users(content: bytes) -> None:
    lines = [line for line in content.splitlines() if line.strip() and line[:1] != b"#"]
    if not lines or any(b":" not in line for line in lines):
        raise ValueProblem(
            "spec.basic.secretRef: its data[auth] must have a line name:hash for each user"
        )
