"""Choice of the Gateway whose answer is explained. No I/O."""

from __future__ import annotations

from collections.abc import Sequence

from gatehouse.compiler.evaluation.explaining import explain_http
from gatehouse.compiler.evaluation.explaining_l4 import explain_l4
from gatehouse.compiler.evaluation.explanation import Explanation
from gatehouse.compiler.evaluation.http_request import HttpRequest
from gatehouse.compiler.evaluation.l4_matching import L4Connection
from gatehouse.incremental.query import Ask, Key


def explain_at_gateway(
    ask: Ask, key: Key, subject: HttpRequest | L4Connection, assume_endpoints: bool
) -> Explanation:
    """Return the explanation of a request or connection at one Gateway.

    A request over TLS for an SNI that passes through is explained as a connection.
    """
    if isinstance(subject, L4Connection):
        return explain_l4(ask, key, subject, assume_endpoints)
    explanation = explain_http(ask, key, subject, assume_endpoints)
    if subject.tls and explanation.answer.verdict == "no-answer":
        connection = L4Connection("TLS", subject.port, subject.sni, subject.client)
        passed = explain_l4(ask, key, connection, assume_endpoints)
        if passed.hostname is not None or (passed.listener and not explanation.listener):
            return passed
    return explanation


def choose_explanation(explanations: Sequence[Explanation], address: str) -> Explanation:
    """Return the explanation of the Gateway that the client probably means. At least one is given.

    ``address``: host of the URL, which may be an address of a Gateway. A Gateway with a matching
    route, or with the port for kube-apiservers, precedes one with the hostname only, and this one
    with the port only.
    """
    return max(
        explanations,
        key=lambda entry: (
            address in entry.addresses,
            bool(entry.match) or entry.answer.verdict == "forwarded",
            bool(entry.hostname),
            bool(entry.unattached),
            entry.listener is not None,
        ),
    )
