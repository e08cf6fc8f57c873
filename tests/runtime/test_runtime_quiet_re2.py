"""RE2 writes nothing about the expressions of users to standard error."""

from __future__ import annotations

from pathlib import Path

import pytest
import re2

from fakes.authority import Authority
from gatehouse.sidecars.authenticator import claims, config
from gatehouse.sidecars.authenticator.config import ClaimConfig, Party, RuleConfig
from gatehouse.sidecars.authenticator.server import AuthServer
from gatehouse.sidecars.base.failure_log import FailureLog
from gatehouse.sidecars.base.service import InvalidConfigError
from kube_api_server.structural import cel

INVALID = "("
PARTY = Party(
    name="p",
    owner="ns/f",
    issuer="https://i.example",
    metadata_url="",
    client_id="c",
    secret="secret",
    trust="trust",
    callback="/cb",
    cookie="S",
    timeout=60.0,
    rules=(RuleConfig((ClaimConfig("c", (INVALID,), regex=True),)),),
)


@pytest.mark.parametrize("function", ["find", "findAll"])
def test_expression_of_a_rule_is_an_error_of_its_evaluation(
    function: str, capfd: pytest.CaptureFixture[str]
) -> None:
    program = cel.compile_rule(f"self.{function}('{INVALID}') == self")
    assert isinstance(program.run(cel.activation("a", None)), cel.EvaluationError)
    assert capfd.readouterr().err == ""


def test_expression_of_a_claim_is_raised(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(re2.error):
        claims.authorized(PARTY, {"c": "a"})
    assert capfd.readouterr().err == ""


async def test_expression_of_a_claim_is_refused(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / config.AUTHENTICATORS_FILE
    file.parent.mkdir()
    file.write_bytes(config.encode_parties([PARTY]))
    (tmp_path / PARTY.secret).write_text("s")
    (tmp_path / PARTY.trust).write_bytes(Authority(tmp_path, "ca").pem)
    server = AuthServer(tmp_path, 0, FailureLog(print))
    with pytest.raises(InvalidConfigError, match="filter ns/f: '\\('"):
        await server.serve([tmp_path])
    assert capfd.readouterr().err == ""
