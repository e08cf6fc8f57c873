"""Options of `gatehouse controller` that `gatehouse up` passes to its controller."""

from __future__ import annotations

import click
import pytest

from gatehouse.cli import controller, up
from gatehouse.cli.shared_options import forwarded_arguments
from gatehouse.controller.class_names import parse_classes

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
    "--class=nginx",
    "--class=edge=envoy",
)
NEEDED = (
    "--agent-advertise-address=c:1",
    "--tls-cert-file=c",
    "--tls-private-key-file=k",
    "--agent-ca-file=a",
)


CLASSES = {"nginx": "gatehouse.dev/nginx", "edge": "gatehouse.dev/envoy"}


def test_classes_have_the_controller_of_their_proxy() -> None:
    parsed = up.up.make_context("up", ["--class", "nginx", "--class", "edge=envoy"])
    assert parsed.params["classes"] == CLASSES
    assert parse_classes(["a.b", "a.b=nginx", "gatehouse-envoy=envoy"]) == {
        "a.b": "gatehouse.dev/nginx",
        "gatehouse-envoy": "gatehouse.dev/envoy",
    }


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        (["Nginx"], "NAME is lower-case letters"),
        ([""], "NAME is lower-case letters"),
        (["=nginx"], "NAME is lower-case letters"),
        (["a_b"], "NAME is lower-case letters"),
        (["-a"], "NAME is lower-case letters"),
        (["a" * 254], "NAME is lower-case letters"),
        (["a\n"], "NAME is lower-case letters"),
        (["nginx=haproxy"], "must end with =nginx or =envoy"),
        (["nginx="], "must end with =nginx or =envoy"),
        (["nginx=envoy=nginx"], "must end with =nginx or =envoy"),
        (["nginx", "nginx=envoy"], "class nginx is gatehouse.dev/nginx"),
        (["gatehouse-envoy"], "class gatehouse-envoy is gatehouse.dev/envoy"),
    ],
)
@pytest.mark.parametrize(
    "command", [up.up, controller.controller_command], ids=["up", "controller"]
)
def test_invalid_classes_are_rejected(
    command: click.Command, values: list[str], reason: str
) -> None:
    arguments = [word for value in values for word in ("--class", value)]
    with pytest.raises(click.BadParameter, match=reason) as error:
        command.make_context(
            "command", [*NEEDED, *arguments] if command is not up.up else arguments
        )
    assert error.value.param is not None
    assert error.value.param.opts == ["--class"]


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
