"""`gatehouse explain`: the reason for the answer to a request."""

from __future__ import annotations

import click

from gatehouse.cli.default_command import GroupWithDefault
from gatehouse.cli.explain_kube_request import kube_request
from gatehouse.cli.explain_request import request


class _RequestByDefault(GroupWithDefault):
    """Group whose subcommand is `request` unless another one is named.

    `--cluster` selects `kube-request`: so the command line of earlier versions stays valid.
    """

    default = "request"

    def with_command(self, args: list[str]) -> list[str]:
        """Return the arguments with the name of a command in front, if the user named none."""
        if not args or args[0] in self.commands:
            return args
        clustered = any(word.partition("=")[0] == "--cluster" for word in args)
        return ["kube-request" if clustered else self.default, *args]


@click.group(cls=_RequestByDefault, context_settings={"help_option_names": ["-h", "--help"]})
def explain() -> None:
    """Show why a request gets the answer that it gets.

    \b
    gatehouse explain https://shop.example/api
    gatehouse explain POST https://shop.example/api -H 'x-version: 2' --send
    gatehouse explain tls://db.example:5432
    gatehouse explain -f manifests/ GET http://shop.example/
    gatehouse explain kube-request --cluster prod --verb list --resource pods

    The first line of the output is the expected answer and its cause. These are the options of
    `gatehouse explain request`.
    """


explain.add_command(request)
explain.add_command(kube_request)

COMMANDS = (explain,)
