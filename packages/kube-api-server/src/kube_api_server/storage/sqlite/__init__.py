"""Storage engine for one process: :mod:`log` on disk, :mod:`store`, which writes through to it, and
:mod:`failures`, the errors of SQLite.
Never here: the meaning of objects.
"""
