"""The engine for one process: :mod:`log` is what lies on disk, :mod:`store` writes through to it."""
