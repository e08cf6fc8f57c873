"""Names and help texts of all commands and options."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator

import click
import pytest
from click.shell_completion import BashComplete

from gatehouse.cli.default_command import GroupWithDefault
from gatehouse.cli.durations import Duration
from gatehouse.cli.main import command


def commands(
    group: click.Command = command, name: str = "gatehouse"
) -> Iterator[tuple[str, click.Command]]:
    """Yield every command with its full name."""
    yield name, group
    if isinstance(group, click.Group):
        context = click.Context(group)
        for word in group.list_commands(context):
            child = group.get_command(context, word)
            assert child is not None
            yield from commands(child, f"{name} {word}")


COMMANDS = dict(commands())
OPTIONS = [
    pytest.param(option, id=f"{name} {option.opts[0]}")
    for name, click_command in COMMANDS.items()
    for option in click_command.params
    if isinstance(option, click.Option)
]


def test_walk_finds_all_commands() -> None:
    assert {"gatehouse ratelimit", "gatehouse node-proxy run", "gatehouse certs machine"} <= set(
        COMMANDS
    )
    assert len(OPTIONS) > 100


@pytest.mark.parametrize("option", OPTIONS)
def test_option_has_help_that_is_a_sentence(option: click.Option) -> None:
    help_text = option.help or ""
    if option.name == "version":
        return
    # A text may start with a name in lower case, such as a path or namespace/name.
    start = r"(?:[A-Z]|namespace/name )"
    assert re.match(start, help_text), help_text
    assert help_text.endswith("."), help_text
    assert not re.search(r"\b(its|ours|theirs|anew)\b", help_text, re.IGNORECASE), help_text


@pytest.mark.parametrize("option", OPTIONS)
def test_option_name_is_lower_case_words(option: click.Option) -> None:
    for name in option.opts:
        assert re.fullmatch(r"--[a-z0-9]+(-[a-z0-9]+)*|-[a-zA-Z]", name)
    assert "--directory" not in option.opts


@pytest.mark.parametrize("name", COMMANDS)
def test_command_has_help_that_is_a_sentence(name: str) -> None:
    help_text = (COMMANDS[name].help or "").partition("\n\n")[0]
    assert re.match(r"[A-Z]", help_text)
    assert help_text.endswith("."), help_text


def test_lb_is_short_name_of_load_balancers() -> None:
    status = COMMANDS["gatehouse status"]
    assert isinstance(status, click.Group)
    context = click.Context(status)
    assert status.get_command(context, "lb") is status.get_command(context, "load-balancers")
    assert "lb" not in status.list_commands(context)


@pytest.mark.parametrize(
    ("text", "seconds"), [("3s", 3), ("1m30s", 90), ("500ms", 0.5), ("1.5", 1.5), ("0", 0)]
)
def test_duration_is_converted_to_seconds(text: str, seconds: float) -> None:
    assert Duration().convert(text, None, None) == seconds


@pytest.mark.parametrize("text", ["", "s", "3x", "-1s", "3 s", "nan"])
def test_duration_is_rejected(text: str) -> None:
    with pytest.raises(click.BadParameter, match="must be a duration"):
        Duration().convert(text, None, None)


@pytest.mark.parametrize(
    "name", [name for name in COMMANDS if isinstance(COMMANDS[name], click.Group)]
)
def test_summary_of_subcommand_is_not_cut(name: str) -> None:
    assert (
        "..."
        not in COMMANDS[name].get_help(click.Context(COMMANDS[name])).partition("Commands:")[2]
    )


def completions(*words: str) -> set[str]:
    """Return what a shell proposes for the last word."""
    shell = BashComplete(command, {}, "gatehouse", "_GATEHOUSE_COMPLETE")
    return {item.value for item in shell.get_completions([*words[:-1]], words[-1])}


@pytest.mark.parametrize("name", ["status", "explain"])
def test_help_and_completion_of_a_group_have_options_of_its_default_command(name: str) -> None:
    group = COMMANDS[f"gatehouse {name}"]
    assert isinstance(group, GroupWithDefault)
    options = [
        option.opts[0]
        for option in group.commands[group.default].params
        if isinstance(option, click.Option)
    ]
    text = group.get_help(click.Context(group))
    assert not [option for option in options if option not in text]
    assert completions(name, "--") >= {option for option in options if option.startswith("--")}
    assert completions(name, "") >= {*group.commands}


def test_shell_completes_commands_options_and_values() -> None:
    assert completions("sta") == {"status"}
    assert completions("explain", "kube") == {"kube-request"}
    assert completions("status", "-n", "shop", "--pro") == {"--problems"}
    assert completions("status", "-o", "w") == {"wide"}
    assert completions("config", "--diff-") == {"--diff-with"}


def test_help_lists_commands_whose_packages_are_not_installed() -> None:
    code = (
        "import sys; sys.modules['aiohttp'] = None; sys.argv = ['gatehouse', '--help']; "
        "from gatehouse.cli.main import main; main()"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
    lines = result.stdout.partition("Commands:")[2]
    assert "up            (not installed: needs the Python package 'aiohttp')" in lines
    assert "node-proxy    Connect Pods" in lines
