"""Authentication: passwords by NGINX itself, signed tokens by its JWT module if it is installed.

OpenID Connect is in :mod:`auth_request`, keys of clients in :mod:`api_keys`.
"""

from __future__ import annotations

from collections.abc import Iterable

from gatehouse.compiler.backends.failures import InvalidValueError
from gatehouse.compiler.backends.nginx import api_keys, auth_request, names, quoting, regex
from gatehouse.compiler.backends.nginx.directives import Directive, map_block, simple_directive
from gatehouse.compiler.backends.nginx.route_context import NginxRouteContext, RoutePiece
from gatehouse.compiler.backends.nginx.traffic_settings import whole_seconds
from gatehouse.compiler.ir import authentication as ir
from gatehouse.compiler.ir.http import Route


def authentication_piece(context: NginxRouteContext, route: Route) -> RoutePiece | None:
    """Return the directives that reject unauthenticated requests. Raises InvalidValueError."""
    authentication = route.authentication
    match authentication:
        case ir.Basic(realm, users, _):
            return RoutePiece(
                checks=(
                    simple_directive(
                        "auth_basic", quoting.quote_text_literal(realm, "basic.realm")
                    ),
                    simple_directive("auth_basic_user_file", names.secret_file(users)),
                )
            )
        case ir.Jwt():
            if not context.capabilities.jwt:
                raise InvalidValueError(
                    "JWT authentication requires the module nginx-auth-jwt, or NGINX Plus"
                )
            return _Tokens(f"{context.scope}/{route.name}").piece(authentication)
        case ir.ApiKeys():
            return api_keys.keys_piece(context, authentication)
        case ir.Oidc():
            return auth_request.auth_request_directives(context, route, authentication)
    return None


MAX_ALTERNATIVES = 128
"""Maximum number of variables in one clause, whose token NGINX must read at once."""

_Clause = list[str]
"""Variables of which one must be "1"; the others are empty."""


class _Tokens:
    def __init__(self, scope: str) -> None:
        self._scope = scope
        self._maps: list[Directive] = []
        self._claim_headers: list[tuple[str, str]] = []

    def piece(self, authentication: ir.Jwt) -> RoutePiece:
        directives = [
            simple_directive(
                "auth_jwt", quoting.quote_text_literal(authentication.realm, "jwt.realm")
            ),
            simple_directive("auth_jwt_key_file", names.secret_file(authentication.keys)),
        ]
        if authentication.leeway:
            directives.append(
                simple_directive("auth_jwt_leeway", whole_seconds(authentication.leeway))
            )
        clauses = self._authorization(authentication.authorization)
        if clauses:
            # A value is empty if all its variables are.
            values = (f'"{_joined(clause)}"' for clause in clauses)
            directives.append(simple_directive("auth_jwt_require", *values, "error=403"))
        return RoutePiece(
            checks=tuple(directives),
            maps=tuple(self._maps),
            claim_headers=tuple(self._claim_headers),
        )

    def _authorization(self, authorization: ir.Authorization) -> list[_Clause]:
        """Return clauses that must all hold."""
        met = [
            self._requirement(f"{number}", requirement)
            for number, requirement in enumerate(authorization.requirements)
        ]
        if authorization.every or len(met) == 1:
            return [clause for clauses in met for clause in clauses]
        short = sum(len(clause) for clauses in met for clause in clauses) <= MAX_ALTERNATIVES
        single = [
            clauses[0] if short and len(clauses) == 1 else [self._combined(f"{number}", clauses)]
            for number, clauses in enumerate(met)
        ]
        return [[variable for clause in single for variable in clause]] if single else []

    def _requirement(self, path: str, requirement: ir.Requirement) -> list[_Clause]:
        """Return clauses that must all hold."""
        claims = [
            self._claim(f"{path}/{number}", claim)
            for number, claim in enumerate(requirement.claims)
        ]
        return [[claim] for claim in claims] if requirement.every else [claims]

    def _claim(self, path: str, claim: ir.Claim) -> str:
        """Return the variable that is "1" if a claim has one of the required values."""
        value = names.variable(self._scope, "claim", path)
        self._maps.append(
            simple_directive("auth_jwt_claim_set", f"${value}", quoting.quote_literal(claim.name))
        )
        if claim.header:
            self._claim_headers.append((claim.header, value))
        matched = names.variable(self._scope, "held", path)
        # Several values of a claim are joined by commas.
        patterns = [
            quoting.quote_literal(f"~(?:^|,)(?:{self._pattern(claim, claim_value)})(?:,|$)")
            for claim_value in claim.values
        ] or ['"~."']
        rows = dict.fromkeys(patterns, '"1"')
        self._maps.append(map_block(f"${value}", f"${matched}", rows))
        return matched

    @staticmethod
    def _pattern(claim: ir.Claim, value: str) -> str:
        if not claim.regex:
            return regex.escape_regex(value)
        return regex.checked(value, f"claim {claim.name}")

    def _combined(self, path: str, clauses: list[_Clause]) -> str:
        """Return the variable that is "1" if one clause holds, or all clauses of one variable."""
        result = names.variable(self._scope, "combined", path)
        joined = "".join(map(_joined, clauses))
        expected = "~1" if len(clauses) == 1 else "~^" + "1" * len(clauses) + "$"
        rows = {f'"{expected}"': '"1"'}
        self._maps.append(map_block(f'"{joined}"', f"${result}", rows))
        return result


def _joined(variables: Iterable[str]) -> str:
    return "".join(f"${{{variable}}}" for variable in variables)
