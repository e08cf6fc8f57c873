"""What resources rely on that every Envoy is started with."""

MAX_PROGRAM_SIZE = 100_000
"""Instructions of a compiled regular expression; Envoy's own limit is 100."""

RUNTIME = {"re2.max_program_size.error_level": MAX_PROGRAM_SIZE}
"""The static layer of Envoy's runtime."""
