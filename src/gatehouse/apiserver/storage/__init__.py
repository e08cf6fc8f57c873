"""Storage: an append-only log of revisions, the newest state in memory, and watches of both.

:mod:`store` is what the API server uses; :mod:`sqlite` is the log on disk behind it. An engine of
another kind implements what :class:`sqlite.Log` offers.
"""
