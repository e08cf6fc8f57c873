"""The engine for one process: :mod:`log` lies on disk, :mod:`store` writes through to it."""
