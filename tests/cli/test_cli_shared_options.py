"""Options of `gatehouse controller` that `gatehouse up` passes to its controller."""

from __future__ import annotations

import click
import pytest

from gatehouse.cli import controller, up
from gatehouse.cli.shared_options import forwarded_arguments

WITHOUT = {
    "set by up, some from its --agent-address and --machine-address": (
        "--kubeconfig", "--tls-cert-file", "--tls-private-key-file", "--agent-ca-file",
        "--machine-ca-file", "--machine-bind-address", "--agent-advertise-address",
        "--agent-bind-address",
    ),
    "data planes listen on the addresses of --address-pool": ("--listener-address-mode",),
    "data planes are local programs, not images": ("--nginx-image", "--envoy-image"),
    "the supervisor runs one controller, which is no Pod": (
        "--leader-election-lease", "--pod",
    ),
    "the agents of one machine need no client certificate": (
        "--client-ca-file", "--client-secret",
    ),
    "one machine has no Pod network and enforces no NetworkPolicy": (
        "--data-plane-network-policy",
    ),
    "one machine pulls no image and runs no packaged NGINX Plus": (
        "--copy-secret", "--plus-usage-report-config",
    ),
}  # fmt: skip
"""Options of the controller that `up` does not have, by reason."""


def names(command: click.Command) -> set[str]:
    return {name for parameter in command.params for name in parameter.opts}


def test_up_has_all_options_of_controller_except_those_with_a_reason() -> None:
    missing = names(controller.controller_command) - names(up.up)
    assert missing == {name for group in WITHOUT.values() for name in group}


GIVEN = (
    "--snippets",
    "--allow-gateway-workload-overrides",
    "--allow-gateway-metadata-domain=example.com",
    "--allow-gateway-metadata-domain=example.net",
    "--allow-external-name=-x.example",
    "--data-plane-pod-security=baseline",
    '--resource-limits={"replicas": 7}',
    "--rate-limit-service=127.0.0.1:8081",
    "--nlk-namespace=lb",
)
NEEDED = (
    "--agent-advertise-address=c:1",
    "--tls-cert-file=c",
    "--tls-private-key-file=k",
    "--agent-ca-file=a",
)


@pytest.mark.parametrize("flags", [(), GIVEN], ids=["defaults", "all set"])
def test_controller_of_up_has_the_values_given_to_up(flags: tuple[str, ...]) -> None:
    parsed = up.up.make_context("up", list(flags))
    arguments = forwarded_arguments(parsed)
    forwarded = controller.controller_command.make_context("controller", [*NEEDED, *arguments])
    # `up` selects a free port before it passes this address on.
    common = names(controller.controller_command) & names(up.up) - {"--health-bind-address"}
    values = {
        parameter.name: forwarded.params[parameter.name]
        for parameter in up.up.params
        if parameter.name and common.intersection(parameter.opts)
    }
    assert set(flags) <= set(arguments)
    assert values == {name: parsed.params[name] for name in values}
    assert len(values) == len({word.partition("=")[0] for word in GIVEN})
