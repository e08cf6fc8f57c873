"""Path modifiers of rewrites and redirects."""

from __future__ import annotations

import pytest

from gatehouse.apis.routes import PathModifier
from gatehouse.compiler.frontends.gateway_api.routes.filters import path_rewrite
from gatehouse.compiler.ir import http as ir


@pytest.mark.parametrize(
    ("value", "path"),
    [("/a", "/a"), ("a", "/a"), (".evil.example", "/.evil.example"), ("", "/"), (None, "/")],
)
def test_path_of_modifier_begins_with_slash(value: str | None, path: str) -> None:
    full = PathModifier(type="ReplaceFullPath", replace_full_path=value)
    prefix = PathModifier(type="ReplacePrefixMatch", replace_prefix_match=value)
    assert path_rewrite(full) == ir.FullPath(path)
    assert path_rewrite(prefix) == ir.PrefixPath(path)
