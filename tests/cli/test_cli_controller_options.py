"""JSON options of `gatehouse controller`, and errors for invalid values."""

from __future__ import annotations

from typing import Any

import pytest
from click.testing import CliRunner

from gatehouse.apis.data_plane_workload import NetworkOptions
from gatehouse.cli import controller
from gatehouse.controller import options

NEEDED = (
    "--agent-advertise-address=c:1",
    "--tls-cert-file=c",
    "--tls-private-key-file=k",
    "--agent-ca-file=a",
)


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Run the command without starting the controller. Return its options or its output."""
    taken: list[options.ControllerOptions] = []
    make = options.ControllerOptions

    def keep(**arguments: Any) -> options.ControllerOptions:
        taken.append(make(**arguments))
        return taken[-1]

    monkeypatch.setattr("gatehouse.controller.options.ControllerOptions", keep)
    monkeypatch.setattr("gatehouse.cli.run.run_until_signal", lambda *_, **__: None)

    def runs(*words: str) -> options.ControllerOptions | str:
        done = CliRunner().invoke(controller.controller_command, [*NEEDED, *words])
        return taken[-1] if done.exit_code == 0 else done.output

    return runs


def test_missing_json_options_use_defaults(run: Any) -> None:
    result = run()
    assert result.network_policy == NetworkOptions()
    assert result.images == options.IMAGES
    assert options.frontend_settings(result).usage is None


def test_controller_runs_with_options_of_command_line(run: Any) -> None:
    result = run(
        '--data-plane-network-policy={"enable":true,"metricsFrom":[],"egressTo":[{"podSelector":{}}]}',
        '--plus-usage-report-config={"endpoint":"nim.example"}',
        "--copy-secret=license=system/plus",
        "--nginx-image=r.example/n@sha256:aa",
    )
    expected = NetworkOptions(enable=True, metrics_from=(), egress_to=({"podSelector": {}},))
    assert result.network_policy == expected
    assert result.images["nginx"] == "r.example/n@sha256:aa"
    usage = options.frontend_settings(result).usage
    assert usage is not None
    assert usage.endpoint == "nim.example"


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ('--data-plane-network-policy={"enabled":true}', "enabled: not supported"),
        ('--data-plane-network-policy={"enable":"yes"}', "$.enable"),
        ("--data-plane-network-policy=null", "Expected `object`"),
        ('--data-plane-network-policy={"egressTo":{}}', "$.egressTo"),
        ('--plus-usage-report-config={"endPoint":"x"}', "endPoint"),
        ("--plus-usage-report-config=x", "--plus-usage-report-config"),
        ("--machine-bind-address=0.0.0.0:1", "--machine-ca-file"),
    ],
)
def test_invalid_option_is_rejected_by_name(run: Any, word: str, message: str) -> None:
    assert message in run(word)
