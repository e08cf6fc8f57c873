"""Rules of routes: matches, filters and backends, translated to IR."""
