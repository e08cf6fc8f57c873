"""Sessions of agents without I/O, and what tests publish to them."""

from __future__ import annotations

import itertools

from gatehouse.transports.agents.session import (
    AgentSession,
    Publish,
    Register,
    SeparateEndpoints,
)

DEADLINE_SECONDS = 60.0
ABOUT = Register("id", "nginx/1.31.3", features=frozenset({"endpoints"}))
PLUS_NAME = "nginx/1.29.3 (nginx-plus-r36)"
FIELD = Register("id", "nginx/1.31.3", main_file="/n.conf", reports_files=True)
STOPPED = Register("id", "nginx/1.31.3", problem="no master", reports_files=True)
PLUS = Register("id", PLUS_NAME, features=frozenset({"api-action", "configuration"}))


def session() -> AgentSession:
    numbers = itertools.count(1)
    return AgentSession(lambda: f"c{next(numbers)}", DEADLINE_SECONDS)


V1 = Publish("v1", lambda: SeparateEndpoints("f1", (("a", "a1"), ("b", "b1"))))
V2 = Publish("v2", lambda: SeparateEndpoints("f1", (("a", "a1"), ("b", "b2"))))
V3 = Publish("v3", lambda: SeparateEndpoints("f2", (("a", "a1"),)))
