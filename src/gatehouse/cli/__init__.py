"""The `gatehouse` command: options in, a part's ``run`` called, errors as one clear line out.

One module per group of subcommands. Nothing here decides anything about gateways.
"""
