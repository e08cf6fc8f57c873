"""Comment with the backend of an NGINX upstream."""

from __future__ import annotations

import pytest

from gatehouse.dataplane.upstream_label import UpstreamLabel, is_upstream_file, parse_label

NAMES = ["Service/shop/web", 'a\n} } worker_processes 9; #"', "\u2028\r\t\\", "\x00\x7f"]


@pytest.mark.parametrize("name", NAMES)
def test_label_is_one_comment_and_keeps_its_values(name: str) -> None:
    label = UpstreamLabel(name, f"gatehouse/endpoints/{name}.json")
    comment = label.comment()
    assert comment.startswith("# ")
    # Only a line feed ends a comment of NGINX.
    assert comment.count("\n") == 1
    assert comment.endswith("\n")
    assert parse_label(comment.encode() + b"upstream c { server 10.0.0.1:1; }\n") == label


@pytest.mark.parametrize("text", [b"", b"upstream c {}\n", b"# gatehouse: \n", b"# gatehouse: []"])
def test_other_files_have_no_label(text: bytes) -> None:
    assert parse_label(text) is None


def test_only_files_of_http_upstreams_have_labels() -> None:
    assert is_upstream_file("gatehouse/upstreams/c-shop-web-80.conf")
    assert not is_upstream_file("gatehouse/stream-upstreams/c-shop-web-80.conf")
    assert not is_upstream_file("gatehouse/upstreams/x/y.conf")
