"""Parser of the option `--storage`, for the commands that import the API server."""

from __future__ import annotations

import click

from kube_api_server.storage import address


def storage(_: click.Context, __: click.Parameter, value: str | None) -> str | None:
    """Validate the address of a storage. Raises BadParameter. Empty and None are defaults."""
    try:
        return address.check_storage(value) if value else value
    except ValueError as error:
        raise click.BadParameter(str(error)) from error
