"""``python -m gatehouse`` is the `gatehouse` command."""

from gatehouse.cli.main import main

main()
