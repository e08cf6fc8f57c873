"""Commands of `gatehouse`: parse options, call ``run`` of a package, print errors as one line.

One module per group of subcommands. Logic about gateways must not be here.
"""
