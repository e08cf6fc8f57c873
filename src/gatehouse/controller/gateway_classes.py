"""GatewayClasses that the controller creates: its own two, and those of the option `--class`."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import structlog

from gatehouse.apis import resources
from gatehouse.controller.class_names import CLASSES
from gatehouse.kube import client as kube
from gatehouse.kube.informer import INFORMER_RETRIES
from kube_base.runtime.backoff import Backoff

log = structlog.get_logger("gatehouse.controller")


async def create_classes(client: kube.Client, classes: Mapping[str, str]) -> None:
    """Create missing GatewayClasses: those of Gatehouse, and `classes`. Others stay unchanged."""
    for name, controller in {**CLASSES, **classes}.items():
        await _create_class(client, name, controller)


async def _create_class(client: kube.Client, name: str, controller: str) -> None:
    gateway_class = {
        "apiVersion": resources.GATEWAY_CLASSES.api_version,
        "kind": resources.GATEWAY_CLASSES.kind,
        "metadata": {"name": name},
        "spec": {"controllerName": controller},
    }
    backoff = Backoff(INFORMER_RETRIES)
    while True:
        try:
            await client.create(resources.GATEWAY_CLASSES, gateway_class)
        except kube.AlreadyExists:
            await _report_other(client, name, controller)
            return
        except kube.Unavailable as error:
            await asyncio.sleep(backoff.failed(error.retry_after))
        except kube.ApiError as error:
            # If this is forbidden, the administrator creates the class or does not want it.
            log.warning("GatewayClass not created", name=name, error=str(error))
            return
        else:
            log.info("GatewayClass created", name=name)
            return


async def _report_other(client: kube.Client, name: str, controller: str) -> None:
    """Log that a class is one of another controller, whose Gateways are not served here."""
    try:
        existing = await client.get(resources.GATEWAY_CLASSES, name)
    except (kube.ApiError, kube.Unavailable) as error:
        log.warning("GatewayClass not read", name=name, error=str(error))
        return
    current = (existing.get("spec") or {}).get("controllerName")
    if current != controller:
        log.warning(
            "GatewayClass belongs to another controller; delete it and restart",
            name=name,
            controller_name=current,
            expected=controller,
        )
