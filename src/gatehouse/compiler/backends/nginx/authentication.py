"""Authentication: passwords by NGINX itself, signed tokens by its JWT module if it is installed.

OpenID Connect is in :mod:`auth_request`.
"""

from __future__ import annotations

from gatehouse.compiler.backends.failures import InvalidValueError
from gatehouse.compiler.backends.nginx import auth_request, names, quoting, regex
from gatehouse.compiler.backends.nginx.directives import Directive, block, simple
from gatehouse.compiler.backends.nginx.route_context import Context, Guard
from gatehouse.compiler.backends.nginx.traffic_settings import seconds
from gatehouse.compiler.ir import authentication as ir


def guard(context: Context, route: str, authentication: ir.Authentication | None) -> Guard:
    """Return the directives that reject unauthenticated requests. Raises InvalidValueError."""
    match authentication:
        case ir.Basic(realm, users, _):
            return Guard(
                (
                    simple("auth_basic", quoting.text(realm)),
                    simple("auth_basic_user_file", names.secret_file(users)),
                )
            )
        case ir.Jwt():
            if not context.capabilities.jwt:
                raise InvalidValueError(
                    "JWT authentication requires the module nginx-auth-jwt, or NGINX Plus"
                )
            return _Tokens(f"{context.scope}/{route}").guard(authentication)
        case ir.Oidc():
            return auth_request.guard(context, authentication)
    return Guard()


class _Tokens:
    def __init__(self, scope: str) -> None:
        self._scope = scope
        self._maps: list[Directive] = []
        self._claim_headers: list[tuple[str, str]] = []

    def guard(self, authentication: ir.Jwt) -> Guard:
        directives = [
            simple("auth_jwt", quoting.text(authentication.realm)),
            simple("auth_jwt_key_file", names.secret_file(authentication.keys)),
        ]
        if authentication.leeway:
            directives.append(simple("auth_jwt_leeway", seconds(authentication.leeway)))
        authorization = authentication.authorization
        if authorization.requirements:
            each = [
                self._requirement(f"{number}", requirement)
                for number, requirement in enumerate(authorization.requirements)
            ]
            variable = self._combine("all", each, every=authorization.every)
            directives.append(simple("auth_jwt_require", f"${variable}", "error=403"))
        return Guard(
            tuple(directives), maps=tuple(self._maps), claim_headers=tuple(self._claim_headers)
        )

    def _requirement(self, path: str, requirement: ir.Requirement) -> str:
        claims = [
            self._claim(f"{path}/{number}", claim)
            for number, claim in enumerate(requirement.claims)
        ]
        return self._combine(path, claims, every=requirement.every)

    def _claim(self, path: str, claim: ir.Claim) -> str:
        """Return the variable that is "1" if a claim has one of the required values."""
        value = names.variable(self._scope, "claim", path)
        self._maps.append(simple("auth_jwt_claim_set", f"${value}", quoting.literal(claim.name)))
        if claim.header:
            self._claim_headers.append((claim.header, value))
        matched = names.variable(self._scope, "held", path)
        # Several values of a claim are joined by commas.
        rows = [
            simple(quoting.literal(f"~(?:^|,)(?:{self._pattern(claim, each)})(?:,|$)"), '"1"')
            for each in claim.values
        ]
        rows += [] if claim.values else [simple('"~."', '"1"')]
        rows.append(simple("default", '""'))
        self._maps.append(block("map", (f"${value}", f"${matched}"), rows))
        return matched

    @staticmethod
    def _pattern(claim: ir.Claim, value: str) -> str:
        if not claim.regex:
            return regex.escape(value)
        regex.whole(value)
        return value

    def _combine(self, path: str, variables: list[str], *, every: bool) -> str:
        result = names.variable(self._scope, "combined", path)
        joined = "".join(f"${{{variable}}}" for variable in variables)
        expected = quoting.literal("~^" + "1" * len(variables) + "$") if every else '"~1"'
        rows = (simple(expected, '"1"'), simple("default", '""'))
        self._maps.append(block("map", (f'"{joined}"', f"${result}"), rows))
        return result
