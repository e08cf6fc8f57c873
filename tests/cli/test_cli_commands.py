"""Every subcommand can be imported: the command names its modules in a table of strings."""

from __future__ import annotations

import click
import pytest

from gatehouse.cli import main


@pytest.mark.parametrize("name", main.MODULES)
def test_every_subcommand_is_importable_and_has_its_name(name: str) -> None:
    assert isinstance(main.command, click.Group)
    result = main.command.get_command(click.Context(main.command), name)
    assert result is not None
    assert result.name == name
