"""Which routes attach to which listeners, and under which hostnames."""
