"""TLS contexts of one configuration that the next one needs again."""

from __future__ import annotations

import ssl
from collections import Counter

import pytest

from gatehouse.sidecars.base.context_cache import ContextCache


class Configured:
    """A sidecar that loads contexts for each configuration."""

    def __init__(self) -> None:
        self.loaded: Counter[tuple[bytes, ...]] = Counter()
        self._cache = ContextCache()

    def configure(self, *contents: tuple[bytes, ...]) -> list[ssl.SSLContext]:
        contexts = [self._context(entry) for entry in contents]
        self._cache.forget_unused()
        return contexts

    def _context(self, contents: tuple[bytes, ...]) -> ssl.SSLContext:
        def load() -> ssl.SSLContext:
            self.loaded[contents] += 1
            return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)

        return self._cache.get(contents, load)


def test_equal_contents_of_successive_configurations_are_loaded_once() -> None:
    sidecar = Configured()
    first = sidecar.configure((b"ca",), (b"ca", b"crl"))
    again = sidecar.configure((b"ca",), (b"ca", b"crl"), (b"ca",))
    assert [*map(id, again)] == [*map(id, [*first, first[0]])]
    assert sidecar.loaded == {(b"ca",): 1, (b"ca", b"crl"): 1}


@pytest.mark.parametrize("other", [(b"other",), (b"c", b"a"), (b"ca", b""), ()])
def test_other_contents_have_another_context(other: tuple[bytes, ...]) -> None:
    one, two = Configured().configure((b"ca",), other)
    assert one is not two


def test_contexts_that_a_configuration_does_not_need_are_forgotten() -> None:
    sidecar = Configured()
    for contents in ((b"old",), (b"new",), (b"old",)):
        sidecar.configure(contents)
    assert sidecar.loaded == {(b"old",): 2, (b"new",): 1}
