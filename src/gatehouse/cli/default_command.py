"""Group of commands, one of which is meant if none is named."""

from __future__ import annotations

import click
from click.shell_completion import CompletionItem


class GroupWithDefault(click.Group):
    """Group whose help and completion have the options of its default command, too.

    Subclasses set `default`, and insert its name in `with_command`.
    """

    default: str

    def with_command(self, args: list[str]) -> list[str]:
        """Return the arguments with the name of a command in front, if the user named none."""
        raise NotImplementedError

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Insert the name of the command, but not where a shell completes it."""
        own_help = any(word in ctx.help_option_names for word in args[:1])
        completed = ctx.resilient_parsing and not args
        return super().parse_args(ctx, args if own_help or completed else self.with_command(args))

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Return names of commands and options of the default command."""
        command = self.commands[self.default]
        own = super().shell_complete(ctx, incomplete)
        more = command.shell_complete(click.Context(command, ctx), incomplete)
        return list({item.value: item for item in (*own, *more)}.values())

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options of the default command, and the list of commands."""
        parameters = self.commands[self.default].get_params(ctx)
        options = [entry for entry in parameters if isinstance(entry, click.Option)]
        records = [option.get_help_record(ctx) for option in options]
        with formatter.section("Options"):
            formatter.write_dl([record for record in records if record is not None])
        self.format_commands(ctx, formatter)
