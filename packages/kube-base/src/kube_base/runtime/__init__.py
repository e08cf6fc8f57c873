"""Building blocks of a process: files, limits, retries, HTTP servers."""
