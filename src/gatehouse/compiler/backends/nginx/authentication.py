"""Authentication: passwords by NGINX itself, signed tokens by its module for them if it has it.

Users of a provider are :mod:`authenticating`'s.
"""

from __future__ import annotations

from gatehouse.compiler.backends.nginx import auth_request, names, quoting, regex
from gatehouse.compiler.backends.nginx.directives import Directive, block, simple
from gatehouse.compiler.backends.nginx.quoting import InvalidValueError
from gatehouse.compiler.backends.nginx.route_context import Context, Guard
from gatehouse.compiler.backends.nginx.traffic_settings import seconds
from gatehouse.compiler.ir import authentication as ir


def guard(context: Context, route: str, wanted: ir.Authentication | None) -> Guard:
    """Give what lets nobody else in. Raises UnwritableError."""
    match wanted:
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
                    "signed tokens need the module nginx-auth-jwt, or NGINX Plus"
                )
            return _Tokens(f"{context.scope}/{route}").guard(wanted)
        case ir.Oidc():
            return auth_request.guard(context, wanted)
    return Guard()


class _Tokens:
    def __init__(self, scope: str) -> None:
        self._scope = scope
        self._maps: list[Directive] = []
        self._told: list[tuple[str, str]] = []

    def guard(self, wanted: ir.Jwt) -> Guard:
        found = [
            simple("auth_jwt", quoting.text(wanted.realm)),
            simple("auth_jwt_key_file", names.secret_file(wanted.keys)),
        ]
        if wanted.leeway:
            found.append(simple("auth_jwt_leeway", seconds(wanted.leeway)))
        asked = wanted.authorization
        if asked.requirements:
            each = [
                self._met(f"{number}", requirement)
                for number, requirement in enumerate(asked.requirements)
            ]
            variable = self._combined("all", each, every=asked.every)
            found.append(simple("auth_jwt_require", f"${variable}", "error=403"))
        return Guard(tuple(found), maps=tuple(self._maps), told=tuple(self._told))

    def _met(self, place: str, requirement: ir.Requirement) -> str:
        each = [
            self._claimed(f"{place}/{number}", claim)
            for number, claim in enumerate(requirement.claims)
        ]
        return self._combined(place, each, every=requirement.every)

    def _claimed(self, place: str, claim: ir.Claim) -> str:
        """Give the variable that says whether one of a claim's values is as wanted."""
        value = names.variable(self._scope, "claim", place)
        self._maps.append(simple("auth_jwt_claim_set", f"${value}", quoting.literal(claim.name)))
        if claim.header:
            self._told.append((claim.header, value))
        held = names.variable(self._scope, "held", place)
        # Several values of a claim are joined by commas.
        rows = [
            simple(quoting.literal(f"~(?:^|,)(?:{self._pattern(claim, each)})(?:,|$)"), '"1"')
            for each in claim.values
        ]
        rows += [] if claim.values else [simple('"~."', '"1"')]
        rows.append(simple("default", '""'))
        self._maps.append(block("map", (f"${value}", f"${held}"), rows))
        return held

    @staticmethod
    def _pattern(claim: ir.Claim, value: str) -> str:
        if not claim.regex:
            return regex.escape(value)
        regex.whole(value)
        return value

    def _combined(self, place: str, each: list[str], *, every: bool) -> str:
        made = names.variable(self._scope, "combined", place)
        joined = "".join(f"${{{variable}}}" for variable in each)
        wanted = quoting.literal("~^" + "1" * len(each) + "$") if every else '"~1"'
        rows = (simple(wanted, '"1"'), simple("default", '""'))
        self._maps.append(block("map", (f'"{joined}"', f"${made}"), rows))
        return made
