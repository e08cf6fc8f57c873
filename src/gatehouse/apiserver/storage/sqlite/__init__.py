"""Storage engine for one process: :mod:`log` on disk, and :mod:`store`, which writes through to it.
Never here: the meaning of objects.
"""
