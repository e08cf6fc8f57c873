"""Distinction of rejections by NGINX from other failures, in the texts of real agents."""

from __future__ import annotations

import pytest

from gatehouse.dataplane.features import NGINX_REJECTED
from gatehouse.transports.agents.rejection import quotes_nginx
from gatehouse.transports.agents.session import ApplyResponse
from gatehouse.transports.commander import messages as commander
from gatehouse.transports.mpi import messages as mpi
from gatehouse.wire.mpi.v1 import common_pb2

REJECTIONS = [
    # Agent v3.
    "validation error: NGINX config test failed exit status 1: nginx: [emerg] unknown directive",
    "NGINX config test failed signal: segmentation fault: ",
    # Agent v2.
    "Config apply failed (write): error running nginx -t -c /etc/nginx/nginx.conf:\n",
    "Config apply failed. Errors found during NGINX reload after applying a new configuration: ",
]
FAILURES = [
    "gatehouse/http.conf could not be fetched: UNAUTHENTICATED",
    'error getting file data for name:"/etc/nginx/nginx.conf": rpc error: code = Unavailable',
    "Config apply failed (download): checksum does not match",
    "Config apply failed (write): no space left on device",
    "[Errno 28] No space left on device",
    "superseded by abc",
]


@pytest.mark.parametrize("text", REJECTIONS)
def test_nginx_messages_are_rejections(text: str) -> None:
    assert quotes_nginx(text)
    assert commander.apply_response("c", text) == ApplyResponse("c", text, rejected=True)


@pytest.mark.parametrize("text", FAILURES)
def test_agent_failures_are_not_rejections(text: str) -> None:
    assert not quotes_nginx(text)
    assert commander.apply_response("c", text) == ApplyResponse("c", text)


def test_reason_of_a_failed_reload_is_the_line_of_nginx() -> None:
    line = "2026/01/02 00:00:00 [emerg] 7#7: bind() to 0.0.0.0:80 failed (98: Address in use)"
    what = "Errors found during NGINX reload after applying a new configuration"
    response = commander.apply_response("c", f"Config apply failed. {what}: {line}")
    assert response == ApplyResponse("c", line, rejected=True)


def test_rejection_by_own_agent_does_not_require_nginx_message() -> None:
    rejected = common_pb2.CommandResponse(message=NGINX_REJECTED, error="nginx -t exited with -11")
    assert mpi.is_rejection(rejected)
    assert not mpi.is_rejection(common_pb2.CommandResponse(message="Config apply failed"))
