"""Runtime settings of every Envoy that generated resources rely on."""

MAX_PROGRAM_SIZE = 100_000
"""Maximum number of instructions of a compiled regular expression. Envoy's default is 100."""

RUNTIME = {"re2.max_program_size.error_level": MAX_PROGRAM_SIZE}
"""Static layer of Envoy's runtime."""
