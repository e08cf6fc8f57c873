"""Failed requests in the metrics of data planes, and their causes."""

from __future__ import annotations

from gatehouse.compiler.evaluation.explanation import ExplainedBackend, ExplainedEndpoint
from gatehouse.inspection.data_plane_metrics import MetricsPage
from gatehouse.inspection.failed_requests import (
    explain_failures,
    failure_line,
    failure_lines,
    with_failures,
)
from gatehouse.inspection.status_report import (
    ReportedBackend,
    ReportedEndpoint,
    ReportedObject,
)

HEAD = "# TYPE gatehouse_backend_requests_total counter\n"


def page(*samples: tuple[str, str, int]) -> MetricsPage:
    lines = [
        f'gatehouse_backend_requests_total{{backend="{backend}",status_class="5xx",'
        f'reason="{reason}"}} {count}\n'
        for backend, reason, count in samples
    ]
    return MetricsPage("shop/web-1", f"{HEAD}{''.join(lines)}other_total 1\n")


PAGES = (
    page(("Service/shop/ui", "", 5), ("Service/shop/ui", "backend_tls", 2),
         ("Service/shop/ui", "timeout", 0)),
    page(("Service/shop/ui", "backend_tls", 1), ("Service/shop/ui", "other", 1),
         ("Service/shop/uis", "timeout", 9)),
    MetricsPage("shop/web-2", problem="is not reachable"),
)  # fmt: skip
TLS = (
    "Service shop/ui: 3 of 9, reason backend_tls: the TLS handshake failed. Check that the port of"
    " the endpoint speaks TLS, as the BackendTLSPolicy of Service shop/ui requires"
)


def test_failures_of_the_backends_are_summed_over_data_planes() -> None:
    endpoint = ExplainedEndpoint("10.0.0.1:8080", ready=True)
    backends = [
        ExplainedBackend("Service shop/ui:80", 1, 50.0, (endpoint,)),
        ExplainedBackend("Service shop/ui:81", 1, 50.0),
        ExplainedBackend("Service shop/api:80", 1, 0.0),
    ]
    lines = [failure_line(failure) for failure in explain_failures(backends, PAGES)]
    assert lines == [TLS, "Service shop/ui: 1 of 9, reason other"]


def test_failures_of_routes_name_the_port_of_the_endpoint() -> None:
    endpoint = ReportedEndpoint("10.0.0.1:8080", ready=True)
    backend = ReportedBackend("shop/ui", 1, 1, addresses=(endpoint,))
    route = ReportedObject("HTTPRoute", "shop", "ui", backends=(backend, backend))
    pages = [page(("Service/shop/ui", "connection_failure", 1))]
    (line,) = failure_lines(with_failures([route, route], pages))
    assert line.startswith("Service shop/ui: 1 of 1, reason connection_failure")
    assert "Check that 8080 is the right targetPort of Service shop/ui" in line
    assert failure_lines(with_failures([route], ())) == []
