"""Decision plans select the same candidate as evaluating one candidate after another."""

from __future__ import annotations

import functools
import random
import re
from collections.abc import Iterable

from gatehouse.compiler.backends.nginx import names
from gatehouse.compiler.backends.nginx.decision_plan import CHUNK_STEPS, Candidate
from gatehouse.compiler.backends.nginx.directives import Directive, DirectiveNode
from gatehouse.compiler.backends.nginx.if_chains import first_match_ifs
from gatehouse.compiler.backends.nginx.locations import LocationTarget, locations
from gatehouse.compiler.backends.nginx.map_chains import MAX_CHAIN_DEPTH, first_match_chain
from gatehouse.compiler.backends.nginx.match_conditions import MatchCondition, match_conditions
from gatehouse.compiler.backends.nginx.route_context import RoutePiece, ServedRoute
from gatehouse.compiler.ir import http as ir

WORDS = (
    "v", "V", "vv", "default", "DEFAULT", "hostnames", "~", "~v", "\\", "\\v", "a b", "a+b", "100%",
    "é", "É", "$host", '"', ".*", "^", "a|b", "x" * 300, "X" * 300, "y" * 3500, "a, b", "\u212a",
    "k",
)  # fmt: skip
MANY = tuple(f"value-{number}" for number in range(30))
REQUESTED = (
    *WORDS, *MANY, "", "VALUE-1", "%76", "%56", "a%20b", "a%2Bb", "a%2bb", "%", "100%25", "%C3%A9",
    "%c3%89", "va%6cue-3", "Va%6Cue-3", "z" * 5000, "v,v", "v, v", "x" * 301,
)  # fmt: skip

QUERY = names.variable("query", "q")
VARIABLE = re.compile(r"\$(?:\{(\w+)\}|(\w+))")


class Nginx:
    """Evaluates maps as NGINX does, and records the nesting depth."""

    def __init__(self, maps: tuple[Directive, ...], variables: dict[str, str]) -> None:
        self._maps = {directive.arguments[1]: directive for directive in maps}
        self._given = {f"${name}": value for name, value in variables.items()}
        self._known: dict[str, str] = {}
        self.deepest = 0

    def value(self, name: str, depth: int = 1) -> str:
        if not name.startswith("$"):
            return name
        if name in self._given:
            return self._given[name]
        self.deepest = max(self.deepest, depth)
        if name not in self._known:
            variable_map = self._maps[name]
            looked_at = self.value(variable_map.arguments[0], depth + 1)
            self._known[name] = self.value(self._row(variable_map, looked_at), depth + 1)
        return self._known[name]

    def _row(self, variable_map: Directive, looked_at: str) -> str:
        rows = [
            directive for directive in variable_map.block or () if isinstance(directive, Directive)
        ]
        otherwise, patterns = "", list[tuple[str, str]]()
        keys: dict[bytes, str] = {}
        for row in rows:
            name, target = row.name, row.arguments[0].strip('"')
            plain = re.sub(r"\\(.)", r"\1", name[1:-1]) if name.startswith('"') else name
            if name == "default":
                otherwise = target
            elif plain.startswith("~"):
                patterns.append((plain[1:], target))
            else:
                key = plain.removeprefix("\\").encode().lower()
                assert key not in keys, "NGINX refuses a key that is there twice"
                assert len(key) <= 300, "NGINX refuses a key that does not fit its hash"
                keys[key] = target
        if looked_at.encode().lower() in keys:
            return keys[looked_at.encode().lower()]
        held = (target for pattern, target in patterns if _matches(pattern, looked_at))
        return next(held, otherwise)


class IfProgram:
    """Runs the directives of a location as NGINX does."""

    def __init__(self, variables: dict[str, str]) -> None:
        self._variables = variables | {"gh_dollar": "$"}

    def destination(self, directives: Iterable[DirectiveNode]) -> str:
        """Return the location that requests are led to; empty: none."""
        target = "@none"
        for directive in directives:
            assert isinstance(directive, Directive)
            match directive.name:
                case "set":
                    name, value = directive.arguments
                    self._variables[name[1:]] = self._text(value)
                case "if" if self._holds(*directive.arguments):
                    if reached := self.destination(directive.block or ()):
                        return reached
                case "error_page":
                    target = directive.arguments[-1]
                case "return":
                    return target if directive.arguments == ("418",) else "@none"
        return ""

    def _holds(self, variable: str, operator: str, operand: str) -> bool:
        value = self._variables.get(variable.removeprefix("($"), "")
        text = operand.removesuffix(")")
        if operator == "=":
            return value == self._text(text)
        match = _matches(_unescaped(text[1:-1]), value)
        for name, group in (match.groupdict() if match else {}).items():
            self._variables[name] = group.encode("latin-1").decode(errors="surrogateescape")
        return match is not None

    def _text(self, token: str) -> str:
        """Return a token with its variables replaced."""
        text = _unescaped(token.removeprefix('"').removesuffix('"'))
        return VARIABLE.sub(lambda m: self._variables.get(m[1] or m[2], ""), text)


@functools.cache
def _unescaped(text: str) -> str:
    return re.sub(r"\\(.)", lambda m: "\n" if m[1] == "n" else m[1], text)


def _matches(pattern: str, value: str) -> re.Match[str] | None:
    """NGINX's expressions match bytes, and name groups as Perl does."""
    return _compiled(pattern).search(value.encode().decode("latin-1"))


@functools.cache
def _compiled(pattern: str) -> re.Pattern[str]:
    text = pattern.replace("(?<gh", "(?P<gh").encode().decode("latin-1")
    return re.compile(text.replace(r"\z", r"\Z"))


def _linear(candidates: list[Candidate], variables: dict[str, str], otherwise: str) -> str:
    for candidate in candidates:
        if all(_holds(condition, variables) for condition in candidate.conditions):
            return candidate.destination
    return otherwise


def _holds(condition: MatchCondition, variables: dict[str, str]) -> bool:
    match = _matches(condition.pattern, variables.get(condition.variable, ""))
    if match is not None:
        variables.update(match.groupdict())
    return match is not None


_conditions = functools.cache(match_conditions)


def _match(rng: random.Random, words: tuple[str, ...]) -> ir.Match:
    def some(name: str, chance: float) -> tuple[ir.ValueMatch, ...]:
        if rng.random() >= chance:
            return ()
        if rng.random() < 0.05:
            return (ir.ValueMatch(name, "v.*", regex=True),)
        return (ir.ValueMatch(name, rng.choice(words)),)

    chances = rng.choice(((1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (1.0, 1.0, 0.3), (0.5, 0.5, 0.5)))
    return ir.Match(
        method=rng.choice(("", "GET", "POST")),
        headers=some("x-a", chances[0]) + some("x-b", chances[2]),
        query=some("q", chances[1]),
    )


def _candidates(rng: random.Random) -> list[Candidate]:
    words = rng.choice((WORDS, MANY, (*WORDS, *MANY)))
    alike = rng.random() < 0.5
    first = _match(rng, words)
    result = []
    for number in range(rng.randint(1, 60)):
        match = _match(rng, words)
        while alike and [h.name for h in match.headers] != [h.name for h in first.headers]:
            match = _match(rng, words)
        # A value that is compared in parts uses variables that only PCRE can name.
        held = tuple(
            match_condition
            for match_condition in _conditions(match)
            if "(?<" not in match_condition.pattern
        )
        result.append(Candidate(f"@{number}", held))
    return result


def test_plan_selects_first_matching_candidate() -> None:
    rng = random.Random(5)
    hits = 0
    for _ in range(300):
        candidates = _candidates(rng)
        chain_plan = first_match_chain("scope", candidates, "@none")
        ifs = first_match_ifs(candidates, names.NOT_FOUND)
        named = {e.variable for candidate in candidates for e in candidate.conditions} - {
            "request_method"
        }
        for _ in range(40):
            near = [e for candidate in candidates for e in candidate.conditions]
            variables = dict.fromkeys(named, "")
            variables |= {name: rng.choice(REQUESTED) for name in named if rng.random() < 0.7}
            variables |= {
                e.variable: e.value
                for e in (rng.sample(near, min(3, len(near))) if rng.random() < 0.6 else ())
                if e.value
            }
            variables["request_method"] = rng.choice(("GET", "POST", "get", "PUT"))
            nginx = Nginx(chain_plan.maps, variables)
            expected = _linear(candidates, dict(variables), "@none")
            assert nginx.value(chain_plan.destination) == expected, (candidates, variables)
            assert nginx.deepest <= MAX_CHAIN_DEPTH
            variables["args"] = f"p=v&q={variables.get(QUERY, '')}&q=other"
            assert IfProgram(variables).destination(ifs) == expected
            hits += expected != "@none"
    assert hits > 2000


def _asked(*named: tuple[str, str]) -> tuple[MatchCondition, ...]:
    return match_conditions(ir.Match(headers=tuple(ir.ValueMatch(*header) for header in named)))


def test_values_of_one_header_require_two_maps() -> None:
    candidates = [Candidate(f"@{n}", _asked(("x-a", f"v{n}"))) for n in range(200)]
    assert len(first_match_chain("scope", candidates, "@none").maps) == 2


def test_shared_condition_is_evaluated_once() -> None:
    candidates = [
        Candidate(f"@{n}-{m}", _asked(("x-a", "same"), ("x-b", f"{n}"), ("x-c", f"{m}")))
        for n in range(20)
        for m in range(10)
    ]
    # One for x-a; two for x-c, which has fewer values, and two for x-b under each of them.
    assert len(first_match_chain("scope", candidates, "@none").maps) == 1 + 2 + 10 * 2


def test_alternating_values_do_not_increase_depth() -> None:
    candidates = [
        Candidate(f"@{n}-{value}", _asked((f"x-{n}", value))) for n in range(600) for value in "ab"
    ]
    maps = first_match_chain("scope", candidates, "@none").maps
    assert len(maps) == 600 + 600 * 2 // CHUNK_STEPS - 1
    nginx = Nginx(maps, {f"http_x_{n}": "" for n in range(599)} | {"http_x_599": "b"})
    assert nginx.value(first_match_chain("scope", candidates, "@none").destination) == "@599-b"
    assert nginx.deepest <= MAX_CHAIN_DEPTH


def test_few_conditions_need_no_map() -> None:
    targets = [
        LocationTarget(ir.PathPrefix("/"), _asked((f"x-{n}", "a"), ("y", "b")), _served(f"@{n}"))
        for n in range(20)
    ]
    blocks, maps = locations("scope", targets)
    assert maps == []
    # One comparison of both values for each candidate.
    assert sum(node.name == "if" for node in _directives(blocks[0])) == 20


def test_maps_that_many_locations_share_stay() -> None:
    conditions = _asked(("x", "a"))
    paths = [
        LocationTarget(ir.PathExact(f"/{n}"), conditions, _served(f"@p{n}")) for n in range(40)
    ]
    regexes = [LocationTarget(ir.PathRegex(f"/.*{n}"), (), _served(f"@r{n}")) for n in range(10)]
    blocks, maps = locations("scope", [*paths, *regexes])
    assert len(maps) == 10 + 40
    assert all(node.name != "if" for location in blocks for node in _directives(location))


def _served(destination: str) -> ServedRoute:
    return ServedRoute(destination, RoutePiece())


def _directives(location: Directive) -> list[Directive]:
    return [node for node in location.block or () if isinstance(node, Directive)]
