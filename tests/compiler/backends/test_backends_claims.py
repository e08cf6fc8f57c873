"""Required claims of signed tokens as clauses of ``auth_jwt_require``."""

from __future__ import annotations

import random
import re

from fakes.compiled_objects import CAPABLE_NGINX
from gatehouse.compiler.backends.nginx import authentication
from gatehouse.compiler.backends.nginx.directives import Directive
from gatehouse.compiler.backends.nginx.quoting import MAX_TOKEN_BYTES
from gatehouse.compiler.backends.nginx.route_context import NginxRouteContext, RoutePiece
from gatehouse.compiler.ir import http as ir
from gatehouse.compiler.ir.authentication import Authorization, Claim, Jwt, Requirement

_VARIABLE = re.compile(r"\$\{(\w+)\}")


def piece(authorization: Authorization) -> RoutePiece:
    context = NginxRouteContext("scope", {}, CAPABLE_NGINX)
    required = Jwt("realm", "keys", authorization=authorization)
    route = ir.Route("route", ir.Match(), ir.Respond(500), authentication=required)
    composed = authentication.authentication_piece(context, route)
    assert composed is not None
    return composed


def permits(required_claims: RoutePiece, claims: dict[str, str]) -> bool:
    """Return whether NGINX permits a token with these claims."""
    values: dict[str, str] = {}

    def expanded(text: str) -> str:
        return _VARIABLE.sub(lambda match: values[match[1]], text.strip('"'))

    for definition in required_claims.maps:
        source, variable = definition.arguments
        if definition.name == "auth_jwt_claim_set":
            values[source[1:]] = claims.get(variable.strip('"'), "")
            continue
        subject = values[source[1:]] if source.startswith("$") else expanded(source)
        rows = [row for row in definition.block or () if isinstance(row, Directive)]
        values[variable[1:]] = next(
            row.arguments[0].strip('"')
            for row in rows
            if row.name == "default" or re.search(row.name.strip('"')[1:], subject)
        )
    checks = required_claims.checks
    (required,) = (item for item in checks if item.name == "auth_jwt_require")
    assert required.arguments[-1] == "error=403"
    assert all(len(token) < MAX_TOKEN_BYTES for token in required.arguments)
    return all(expanded(token) not in ("", "0") for token in required.arguments[:-1])


def meets(authorization: Authorization, claims: dict[str, str]) -> bool:
    met = [
        (all if requirement.every else any)(
            claims.get(claim.name) in claim.values for claim in requirement.claims
        )
        for requirement in authorization.requirements
    ]
    return (all if authorization.every else any)(met)


def test_claims_are_required_as_specified() -> None:
    rng = random.Random(3)
    outcomes: list[bool] = []
    for _ in range(300):
        authorization = Authorization(
            tuple(
                Requirement(
                    tuple(
                        Claim(rng.choice("abcd"), (rng.choice("xyz"),))
                        for _ in range(rng.randint(1, 3))
                    ),
                    rng.random() < 0.5,
                )
                for _ in range(rng.randint(1, 3))
            ),
            rng.random() < 0.5,
        )
        required_claims = piece(authorization)
        for _ in range(20):
            claims = {name: rng.choice("xyz") for name in "abcd" if rng.random() < 0.8}
            outcomes.append(meets(authorization, claims))
            assert permits(required_claims, claims) == outcomes[-1], (authorization, claims)
    assert 1000 < sum(outcomes) < 5000


def test_largest_authorization_fits_the_tokens_of_nginx() -> None:
    largest = Authorization(
        tuple(
            Requirement(
                tuple(Claim(f"c{rule}-{claim}", ("x",)) for claim in range(32)), every=False
            )
            for rule in range(32)
        ),
        every=False,
    )
    assert permits(piece(largest), {"c31-31": "x"})
    assert not permits(piece(largest), {"c31-31": "y"})


def test_conjunctions_and_disjunctions_need_one_map_for_each_claim() -> None:
    claims = (Claim("a", ("x",)), Claim("b", ("x",)))
    for every in (True, False):
        required_claims = piece(
            Authorization((Requirement(claims, every), Requirement(claims, every)))
        )
        assert [item.name for item in required_claims.maps].count("map") == 4
