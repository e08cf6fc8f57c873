"""Names of GatewayClasses that the controller creates, with the proxy of each. No I/O."""

from __future__ import annotations

import re
from collections.abc import Iterable

from gatehouse.apis.gateway import ENVOY_CONTROLLER, NGINX_CONTROLLER

CLASSES = {"gatehouse-nginx": NGINX_CONTROLLER, "gatehouse-envoy": ENVOY_CONTROLLER}
"""GatewayClasses that are created if missing, with their ``controllerName``."""

_CONTROLLERS = {"nginx": NGINX_CONTROLLER, "envoy": ENVOY_CONTROLLER}
"""``controllerName`` by proxy."""

_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
MAX_NAME_CHARACTERS = 253


def parse_classes(texts: Iterable[str]) -> dict[str, str]:
    """Return the ``controllerName`` by class of texts such as `nginx` and `edge=envoy`.

    Raises ValueError.
    """
    result: dict[str, str] = {}
    for text in texts:
        name, equals, proxy = text.partition("=")
        if not _NAME.fullmatch(name) or len(name) > MAX_NAME_CHARACTERS:
            raise ValueError(
                f"{text!r}: must be NAME, NAME=nginx or NAME=envoy; NAME is lower-case letters, "
                "digits, '-' and '.'"
            )
        if equals and proxy not in _CONTROLLERS:
            raise ValueError(f"{text!r}: must end with =nginx or =envoy")
        controller = _CONTROLLERS[proxy or "nginx"]
        if {**CLASSES, **result}.get(name, controller) != controller:
            raise ValueError(f"{text!r}: class {name} is {({**CLASSES, **result})[name]}")
        result[name] = controller
    return result
