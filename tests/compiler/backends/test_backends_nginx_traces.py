"""Configuration of NGINX's module ngx_otel_module: ``test_backends_nginx_spans`` runs it."""

from __future__ import annotations

import msgspec
import pytest

from fakes.envoy_serving import host, plain, route_to
from gatehouse.compiler.backends import nginx
from gatehouse.compiler.ir import http as ir
from gatehouse.compiler.ir.authentication import Basic
from gatehouse.compiler.ir.gateway import GatewayConfiguration
from gatehouse.compiler.ir.settings import DataPlaneSettings, Settings
from gatehouse.compiler.ir.tracing import SpanAttribute, TraceExport, Tracing
from gatehouse.dataplane.origin import Origin

POLICY = Origin("ObservabilityPolicy", "ns", "traces")
PLAIN = msgspec.structs.replace(nginx.NginxCapabilities.parse("1.31.3"), access_log=True)
ABLE = msgspec.structs.replace(PLAIN, traces=True)
SAMPLED = r'"~^00-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f][13579bdf]$"'
HOSTILE = 'a "b" $request_uri ${x} \\ ; }'
EXPORT = TraceExport(
    "collector.ns.svc", 4317, "gatehouse:ns:gw", interval=0.5, batch_size=10, batch_count=2,
    attributes=(SpanAttribute("site", "north"),), origin=Origin("NginxProxy", "", "p"),
)  # fmt: skip


def traced(tracing: Tracing | None, path: str, *headers: ir.ValueMatch) -> ir.Route:
    """Return a route named like its path."""
    name = f"ns/{path.strip('/')}{len(headers)}/0/0"
    settings = Settings(tracing=tracing)
    route = route_to("c", name, path, settings=settings)
    return msgspec.structs.replace(route, match=ir.Match(ir.PathPrefix(path), headers=headers))


def files(
    *routes: ir.Route,
    able: nginx.NginxCapabilities = ABLE,
    export: TraceExport | None = EXPORT,
) -> dict[str, str]:
    """Return the generated files, all of which are supported."""
    generated = nginx.NginxGenerator(able).generate(gateway(routes, export))
    assert not generated.unsupported, generated.unsupported
    return {path: file.content.decode() for path, file in generated.file_set.files.items()}


def gateway(routes: tuple[ir.Route, ...], export: TraceExport | None) -> GatewayConfiguration:
    return plain(
        [host("a.example", *routes)],
        [ir.Cluster("c", (ir.Endpoint("127.0.0.1", 80),))],
        settings=DataPlaneSettings(traces=export),
    )


def server(*routes: ir.Route) -> str:
    """Return the file of the virtual host."""
    return next(text for path, text in files(*routes).items() if "/8080-a.example" in path)


def location(text: str, start: str) -> str:
    """Return the block of a location."""
    return text.partition(f"location {start} {{")[2].partition("\n    }")[0]


def test_exporter_is_written_once_and_included() -> None:
    written = files(traced(Tracing(100, origin=POLICY), "/a"))
    lines = [line.strip() for line in written["gatehouse/traces.conf"].splitlines()]
    assert lines == [
        "otel_exporter {",
        "endpoint collector.ns.svc:4317;",
        "interval 500ms;",
        "batch_size 10;",
        "batch_count 2;",
        "}",
        'otel_service_name "gatehouse:ns:gw";',
        # In locations that several routes share.
        "otel_span_name $gh_log_route;",
        'otel_span_attr gatehouse.gateway "ns/gw";',
        'otel_span_attr gatehouse.listener "ns/gw:$gh_port";',
        'otel_span_attr "site" "north";',
        'otel_span_attr "gatehouse.route" $gh_log_route;',
    ]
    assert written["gatehouse/http.conf"].count("include gatehouse/traces.conf;") == 1


def test_exporter_with_tls_has_the_scheme_of_it() -> None:
    secure = msgspec.structs.replace(EXPORT, tls=True)
    written = files(traced(Tracing(100, origin=POLICY), "/a"), export=secure)
    assert "    endpoint https://collector.ns.svc:4317;\n" in written["gatehouse/traces.conf"]


def test_exporter_verifies_the_collector_with_the_ca_certificates_that_are_set() -> None:
    secure = msgspec.structs.replace(EXPORT, tls=True, trust="ca-1")
    written = files(traced(Tracing(100, origin=POLICY), "/a"), export=secure)
    line = "    trusted_certificate gatehouse/tls/ca-1.pem;\n"
    assert line in written["gatehouse/traces.conf"]


def test_client_certificate_of_the_exporter_is_not_supported() -> None:
    secure = msgspec.structs.replace(EXPORT, tls=True, certificate="client")
    generated = nginx.NginxGenerator(ABLE).generate(gateway((), secure))
    reason = "the module ngx_otel_module sends no client certificate"
    (entry,) = generated.unsupported
    field = EXPORT.origin.field("tls.clientCertificateRef")
    assert (entry.setting, entry.reason, entry.served) == (field, reason, True)


def test_span_of_a_route_has_quoted_name_and_attributes() -> None:
    attributes = (SpanAttribute("team", HOSTILE),)
    text = server(traced(Tracing(100, "propagate", "n $1", attributes, POLICY), "/a"))
    expected = """
        otel_trace on;
        otel_trace_context propagate;
        otel_span_name "n ${gh_dollar}1";
        otel_span_attr gatehouse.gateway "ns/gw";
        otel_span_attr gatehouse.listener "ns/gw:$gh_port";
        otel_span_attr "site" "north";
        otel_span_attr "gatehouse.route" "ns/a0/0";
        otel_span_attr "team" "a \\"b\\" ${gh_dollar}request_uri ${gh_dollar}{x} \\\\ ; }";
    """
    own = location(text, '^~ "/a/"')
    for line in filter(None, map(str.strip, expected.splitlines())):
        assert line in own, own


@pytest.mark.parametrize(
    ("percent", "of_parent", "sampled"),
    [(100, None, "on"), (25, None, "$gh_traced_25"), (0, 100, "$gh_parent_traced")],
)
def test_strategy_is_a_value_of_otel_trace(
    percent: float, of_parent: float | None, sampled: str
) -> None:
    tracing = Tracing(percent, origin=POLICY, parent_percent=of_parent)
    written = files(traced(tracing, "/a"))
    text = next(text for path, text in written.items() if "/8080-a.example" in path)
    assert f"otel_trace {sampled};" in location(text, '^~ "/a/"')
    # The default of NGINX is to ignore the context.
    assert "otel_trace_context" not in text
    shared = written["gatehouse/http.conf"]
    assert shared.count('split_clients "trace$request_id" $gh_traced_25') == (percent == 25)
    assert shared.count("map $http_traceparent $gh_parent_traced") == (of_parent == 100)


@pytest.mark.parametrize(
    ("percent", "of_parent", "sampled", "definitions"),
    [
        (0.5, None, "$gh_traced_0_5", ["$gh_traced_0_5 { 0.5% on; * off; }"]),
        (
            100,
            12.25,
            "$gh_parent_traced_100_12_25",
            [
                "$gh_traced_12_25 { 12.25% on; * off; }",
                f'$gh_parent_traced_100_12_25 {{ "" on; {SAMPLED} $gh_traced_12_25; default off;',
            ],
        ),
        (
            10,
            0,
            "$gh_parent_traced_10_0",
            [
                "$gh_traced_10 { 10% on; * off; }",
                '$gh_parent_traced_10_0 { "" $gh_traced_10; default off; }',
            ],
        ),
    ],
)
def test_share_may_depend_on_the_decision_of_the_client(
    percent: float, of_parent: float | None, sampled: str, definitions: list[str]
) -> None:
    tracing = Tracing(percent, "propagate", origin=POLICY, parent_percent=of_parent)
    written = files(traced(tracing, "/a"))
    text = next(text for path, text in written.items() if "/8080-a.example" in path)
    assert f"otel_trace {sampled};" in location(text, '^~ "/a/"')
    shared = " ".join(written["gatehouse/http.conf"].split())
    for definition in definitions:
        assert definition in shared


def test_finer_share_than_nginx_has_is_reported() -> None:
    routes = (traced(Tracing(1e-5, origin=POLICY, parent_percent=1 / 3), "/a"),)
    generated = nginx.NginxGenerator(ABLE).generate(gateway(routes, EXPORT))
    fields = ("samplingRate", "parentBasedSampling.samplingRate")
    assert {entry.setting for entry in generated.unsupported} == {
        POLICY.field(f"tracing.{field}") for field in fields
    }
    shared = " ".join(generated.file_set.files["gatehouse/http.conf"].content.decode().split())
    assert "$gh_traced_0_01 { 0.01% on; * off; }" in shared


FIELD = POLICY.field("tracing.attributes[0]")


@pytest.mark.parametrize(
    ("attribute", "value"),
    [
        (SpanAttribute("k", "X-User_Id", "header"), None),
        (SpanAttribute("k", "X-User", "header"), "$http_x_user"),
        (SpanAttribute("k", "a$b", "header"), None),
        (SpanAttribute("k", "http.request.method", "semantic"), "$request_method"),
        (SpanAttribute("k", "http.request.header.x-a", "semantic"), "$http_x_a"),
        (SpanAttribute("k", "http.response.header.x-a", "semantic"), "$sent_http_x_a"),
        (SpanAttribute("k", "url.path", "semantic"), None),
        (SpanAttribute("k", '$1 "; }'), '"${gh_dollar}1 \\"; }"'),
    ],
)
def test_attribute_of_all_spans_has_a_value_that_nginx_knows(
    attribute: SpanAttribute, value: str | None
) -> None:
    attribute = msgspec.structs.replace(attribute, origin=FIELD)
    export = msgspec.structs.replace(EXPORT, attributes=(attribute,))
    generated = nginx.NginxGenerator(ABLE).generate(gateway((traced(None, "/a"),), export))
    text = generated.file_set.files["gatehouse/traces.conf"].content.decode()
    assert (f'otel_span_attr "k" {value};' in text) == (value is not None)
    assert ('"k"' in text) == (value is not None)
    assert [entry.setting for entry in generated.unsupported] == ([] if value else [FIELD])


@pytest.mark.parametrize(
    ("addresses", "endpoint"),
    [
        ([("10.0.0.1", 4317), ("10.0.0.2", 4318)], "ipv4:10.0.0.1:4317,10.0.0.2:4318"),
        ([("fd00::1", 4317)], "ipv6:[fd00::1]:4317"),
        ([("fd00::1", 4317), ("10.0.0.1", 4317)], "ipv4:10.0.0.1:4317"),
    ],
)
def test_exports_go_to_known_addresses_with_headers(
    addresses: list[tuple[str, int]], endpoint: str
) -> None:
    headers = (("authorization", 'a "b" $1 ;'),)
    export = msgspec.structs.replace(EXPORT, addresses=tuple(addresses), headers=headers)
    text = files(traced(None, "/a"), export=export)["gatehouse/traces.conf"]
    assert f"    endpoint {endpoint};\n" in text
    assert '    header "authorization" "a \\"b\\" $1 ;";\n' in text


def test_collector_with_tls_at_addresses_gets_no_span_from_nginx() -> None:
    """The module verifies the name that it connects to."""
    export = msgspec.structs.replace(EXPORT, addresses=(("10.0.0.1", 4317),), tls=True)
    routes = (traced(Tracing(100, origin=POLICY), "/a"),)
    generated = nginx.NginxGenerator(ABLE).generate(gateway(routes, export))
    assert not [path for path, file in generated.file_set.files.items() if b"otel" in file.content]
    (entry,) = generated.unsupported
    assert (entry.setting, "cannot verify" in entry.reason) == (EXPORT.origin, True)


def test_first_location_decides_by_the_chain_that_selects_the_route() -> None:
    version = ir.ValueMatch("x-version", "2")
    text = server(traced(Tracing(25, "extract", origin=POLICY), "/a", version), traced(None, "/a"))
    own = location(text, '^~ "/a/"')
    (variable,) = [line.split()[1].strip(";") for line in own.splitlines() if "otel_trace " in line]
    rows = text.partition(f" {variable} {{")[2].partition("}")[0].split(";")
    assert variable.startswith("$gh_")
    assert [row.split()[-1] for row in rows if row.strip()] == ["$gh_traced_25", "off"]
    assert "otel_trace_context extract;" in own
    # The untraced route has no span, so that it names none.
    assert text.count("otel_span_name") == 1


FORWARD = ir.Forward((ir.Backend("c"),))


@pytest.mark.parametrize(
    ("action", "authentication", "number"),
    [
        (FORWARD, None, 1),
        (FORWARD, Basic("realm", "users"), 1),
        # The first attempt, those that another one follows, the last one, and both failures.
        (msgspec.structs.replace(FORWARD, retry=ir.Retry(2, codes=(502,))), None, 5),
        # The check of the credentials, and the response after it.
        (ir.Redirect(), Basic("realm", "users"), 2),
    ],
)
def test_every_location_of_a_route_names_the_span(
    action: ir.Action, authentication: Basic | None, number: int
) -> None:
    """NGINX takes the name of the location that ends the request."""
    route = traced(Tracing(100, origin=POLICY), "/")
    text = server(msgspec.structs.replace(route, action=action, authentication=authentication))
    assert text.count('otel_span_name "ns/0/0"') == number
    assert text.count('otel_span_attr "gatehouse.route" "ns/0/0"') == number


@pytest.mark.parametrize("tracing", [None, Tracing(0, "propagate", origin=POLICY)])
def test_location_without_traced_route_has_no_directives(tracing: Tracing | None) -> None:
    assert "otel_" not in server(traced(tracing, "/a"))


def test_gateway_without_exporter_has_no_directives() -> None:
    routes = (traced(Tracing(100, origin=POLICY), "/a"),)
    assert not [text for text in files(*routes, export=None).values() if "otel" in text]


def test_access_log_has_the_trace_of_the_module() -> None:
    log = files(traced(None, "/a"))["gatehouse/access_log.conf"]
    assert '"trace_id":"$otel_trace_id"' in log
    other = files(traced(None, "/a"), export=None)["gatehouse/access_log.conf"]
    assert "$otel_trace_id" not in other


def test_rejected_line_leads_to_the_policy_or_the_parameters() -> None:
    routes = (traced(Tracing(100, origin=POLICY), "/a"), traced(None, "/b"))
    config = gateway(routes, EXPORT)
    parameters = EXPORT.origin.whole
    settings = msgspec.structs.replace(config.settings, origins=(parameters,))
    config = msgspec.structs.replace(config, settings=settings)
    written = nginx.NginxGenerator(ABLE).generate(config).file_set.files
    for directive, origin in (("otel_span_name", POLICY), ("endpoint", parameters)):
        (path, number) = next(
            (path, number)
            for path, file in sorted(written.items())
            for number, line in enumerate(file.content.decode().splitlines(), 1)
            if line.strip().startswith(f"{directive} ")
        )
        message = f"[emerg] invalid value in /etc/nginx/{path}:{number}"
        assert [suspect.origin for suspect in nginx.suspects(config, ABLE, message)] == [origin]


def test_rejected_line_of_the_export_leads_to_the_object_that_sets_it() -> None:
    parameters = Origin("GatewayParameters", "ns", "all")
    policy = Origin("XTelemetryPolicy", "ns", "p")
    attributes = (
        SpanAttribute("site", "north"),
        SpanAttribute("env", "x", origin=policy.field("tracing.attributes[0].literalValue")),
    )
    export = msgspec.structs.replace(EXPORT, origin=policy.field("a"), attributes=attributes)
    config = gateway((traced(None, "/a"),), export)
    settings = msgspec.structs.replace(config.settings, origins=(parameters, policy))
    config = msgspec.structs.replace(config, settings=settings)
    text = nginx.NginxGenerator(ABLE).generate(config).file_set.files["gatehouse/traces.conf"]
    lines = text.content.decode().splitlines()
    for start, expected in (
        ("    endpoint", [policy]),
        ('otel_span_attr "env"', [policy]),
        ('otel_span_attr "site"', [parameters, policy]),
    ):
        (number,) = [n for n, line in enumerate(lines, 1) if line.startswith(start)]
        message = f"[emerg] invalid value in /etc/nginx/gatehouse/traces.conf:{number}"
        assert [entry.origin for entry in nginx.suspects(config, ABLE, message)] == expected


def test_nginx_without_module_serves_and_names_policy_and_exporter() -> None:
    routes = (traced(Tracing(100, "propagate", origin=POLICY), "/a"), traced(None, "/b"))
    generated = nginx.NginxGenerator(PLAIN).generate(gateway(routes, EXPORT))
    assert not [
        path
        for path, file in generated.file_set.files.items()
        if b"otel" in file.content or "traces" in path
    ]
    reason = "this NGINX has no module ngx_otel_module: requests are not traced"
    settings = {(entry.setting, entry.reason, entry.served) for entry in generated.unsupported}
    assert settings == {
        (POLICY.field("tracing"), reason, True),
        (EXPORT.origin, reason, True),
    }


def test_common_capability_requires_the_module_in_all_instances() -> None:
    common = nginx.NginxCapabilities.common
    both, one = common([ABLE, ABLE]), common([ABLE, PLAIN])
    assert both is not None
    assert one is not None
    assert (both.traces, one.traces) == (True, False)
