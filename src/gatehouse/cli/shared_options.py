"""Options of the controller that `gatehouse up` has too, and passes to its controller.

Most limit what authors of Gateways, routes and policies may ask for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, TypeAlias, get_args

import click

from gatehouse.apis.external_load_balancers import NLK_NAMESPACE
from gatehouse.apis.gateway import EXTERNAL_NAME_OPTION, METADATA_OPTION
from gatehouse.apis.resource_limits import (
    RESOURCE_LIMITS,
    RESOURCE_LIMITS_OPTION,
    ResourceLimits,
    parse_limits,
)
from gatehouse.cli.option_values import parse_with
from gatehouse.controller.class_names import parse_classes
from gatehouse.controller.provisioner.pod_security import POD_SECURITY_OPTION, Level

if TYPE_CHECKING:
    from gatehouse.compiler.frontends.gateway_api import ControllerSettings

_Callback: TypeAlias = Callable[[click.Context, click.Parameter, Any], Any]

_FORWARDED = "gatehouse.forwarded"
"""Key of the arguments in the context of a command."""


def _option(name: str, *names: str, callback: _Callback | None = None, **attributes: Any) -> Any:
    """Return an option that records its arguments in the context, before `callback` parses them."""

    def record(context: click.Context, parameter: click.Parameter, value: Any) -> Any:
        context.meta.setdefault(_FORWARDED, []).extend(_arguments(name, value))
        return callback(context, parameter, value) if callback else value

    return click.option(name, *names, callback=record, **attributes)


def _arguments(name: str, value: str | bool | tuple[str, ...]) -> Iterator[str]:
    if isinstance(value, bool):
        yield from [name] if value else []
        return
    for text in [value] if isinstance(value, str) else value:
        # The value may begin with a dash.
        yield f"{name}={text}"


def forwarded_arguments(context: click.Context) -> tuple[str, ...]:
    """Return the arguments with which a controller has the values of these options."""
    return tuple(context.meta.get(_FORWARDED, ()))


_OPTIONS = (
    _option("--snippets", is_flag=True, help="Allow SnippetsFilters: raw NGINX configuration."),
    _option(
        "--allow-gateway-workload-overrides",
        "workload_overrides",
        is_flag=True,
        help="Allow parameters of Gateways to set every field of spec.kubernetes, such as patches, "
        "image and volumes. Their authors can then run any command where data planes run.",
    ),
    _option(
        METADATA_OPTION,
        "metadata_domains",
        multiple=True,
        help="Domain of the labels and annotations that spec.infrastructure of Gateways may set, "
        "and of subdomains; * for all. Can be repeated. Default: only keys without a domain.",
    ),
    _option(
        EXTERNAL_NAME_OPTION,
        "external_names",
        multiple=True,
        help="Domain of the names of ExternalName Services and XBackends that may be backends, and "
        "of subdomains; * for all. With *, parameters of Gateways may choose name servers, and "
        "authors of Services and XBackends can reach every address that data planes reach. Can be "
        "repeated. Default: none.",
    ),
    _option(
        POD_SECURITY_OPTION,
        "pod_security",
        type=click.Choice(get_args(Level)),
        default="restricted",
        show_default=True,
        help="Pod Security Standard that Pods of data planes must meet.",
    ),
    _option(
        RESOURCE_LIMITS_OPTION,
        "resource_limits",
        default="",
        callback=parse_with(parse_limits),
        help="JSON object of ceilings of what objects may claim of data planes, by name: "
        f"{', '.join(RESOURCE_LIMITS)}.",
    ),
    _option(
        "--rate-limit-service",
        "limit_counter",
        default="",
        help="Address of the rate limit service for limits that data planes share (host:port).",
    ),
    _option(
        "--nlk-namespace",
        default=NLK_NAMESPACE,
        show_default=True,
        help="Namespace of ConfigMaps of nginx-loadbalancer-kubernetes. Their authors control load "
        "balancers.",
    ),
    _option(
        "--class",
        "classes",
        multiple=True,
        metavar="NAME[=nginx|envoy]",
        callback=parse_with(parse_classes),
        help="GatewayClass to create, besides gatehouse-nginx and gatehouse-envoy. --class nginx "
        "serves Gateways of NGINX Gateway Fabric unchanged. Can be repeated. Default proxy: nginx.",
    ),
)


def shared_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options to a command."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


_FRONT_END_OPTIONS = (*_OPTIONS[:4], *_OPTIONS[5:7])
"""Options that decide about conditions. The others concern Pods and ConfigMaps."""


def front_end_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that :func:`front_end_settings` needs to a command."""
    for option in reversed(_FRONT_END_OPTIONS):
        command = option(command)
    return command


def front_end_settings(
    snippets: bool,
    workload_overrides: bool,
    metadata_domains: tuple[str, ...],
    external_names: tuple[str, ...],
    resource_limits: ResourceLimits,
    limit_counter: str,
) -> ControllerSettings:
    """Return the settings of the front ends for values of these options."""
    from gatehouse.compiler.frontends.gateway_api import ControllerSettings

    return ControllerSettings(
        bind="any",
        snippets=snippets,
        counter=limit_counter,
        workload_overrides=workload_overrides,
        limits=resource_limits,
        metadata_domains=metadata_domains,
        external_names=external_names,
    )
