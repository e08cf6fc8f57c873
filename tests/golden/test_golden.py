"""Golden tests: objects in, proxy configuration and statuses out. Every directory here is a case.

``input.yaml`` has the objects, admitted as the API server admits them (so that a case cannot have
objects that users could not apply). ``rejected.yaml`` has what a proxy rejects of them. ``nginx/``
has the files of virtual hosts and clusters, ``status.yaml`` the statuses, ``apis/`` the IR of
kube-apiservers. ``envoy/`` has resources, and the statuses that differ with Envoy. ``make golden``
rewrites the expected files; review the diff.
"""

from __future__ import annotations

import functools
import re
import tempfile
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from fakes import envoys, nginx_check, resource_fields
from fakes.admission import NOW, admitted_objects
from fakes.compiled_objects import engine_with
from fakes.rejected_parts import reject_part
from gatehouse.agent import system_trust
from gatehouse.compiler.backends import envoy, nginx
from gatehouse.compiler.frontends import combined, gateway_api
from gatehouse.compiler.ir.gateway import GatewayConfiguration
from gatehouse.compiler.ir.unsupported import Suspect
from gatehouse.controller import plus_usage
from gatehouse.controller.held_back import port_part
from gatehouse.controller.outputs import by_subject
from gatehouse.controller.provisioner.copied_secrets import SecretSource
from gatehouse.controller.quarantines import describe
from gatehouse.controller.stored_verdicts import REJECTED_BY
from gatehouse.dataplane.file_set import FileSet
from gatehouse.dataplane.origin import Origin
from gatehouse.incremental.query import Engine, Key

HERE = Path(__file__).parent
CASES = sorted(path.parent.name for path in HERE.glob("*/input.yaml"))
MODULES = ("http_auth_request_module", "nginx-auth-jwt-0.14.2")
REPORTS = plus_usage.reports(
    plus_usage.parse_plus_usage(
        '{"endpoint": "nim.example:8443", "resolver": "192.0.2.53 [2001:db8::53]:5353",'
        ' "proxy": "proxy.example:3128", "skipVerify": true, "enforceInitialReport": false}'
    ),
    [SecretSource.parse(f"{use}=ns/plus") for use in ("license", "usage-ca", "usage-client")],
)
ENVOY = envoy.EnvoyCapabilities(authenticators=True, runtime_limits=True)

BASE = """
apiVersion: gateway.networking.k8s.io/v1
kind: GatewayClass
metadata: {name: gatehouse-nginx}
spec: {controllerName: gatehouse.dev/nginx}
---
apiVersion: v1
kind: Namespace
metadata: {name: ns, labels: {kubernetes.io/metadata.name: ns}}
"""


HTTP_KINDS = [
    {"group": "gateway.networking.k8s.io", "kind": kind} for kind in ("HTTPRoute", "GRPCRoute")
]


def engine_of(text: str, settings: gateway_api.ControllerSettings) -> Engine:
    objects = [*admitted_objects(BASE), *admitted_objects(text)]
    engine = engine_with(objects, settings)
    gateways = [raw["metadata"] for kind, raw in objects if kind == "Gateway"]
    programmed = gateway_api.ProgrammedInput(programmed=True)
    engine.commit({("Programming", own["namespace"], own["name"]): programmed for own in gateways})
    return engine


@functools.cache
def outputs(case: str) -> tuple[dict[str, str], FileSet | None]:
    """Return the expected files of a case, and the file set of its first served Gateway."""
    engine = _engine(case)
    files: dict[str, str] = {}
    file_set: FileSet | None = None
    for key, gateway in _gateways(engine):
        if gateway.api_listeners:
            files[f"apis/{key[2]}.yaml"] = _yaml(_shown(gateway.api_listeners))
        generated = nginx.NginxGenerator(_nginx_of(case)).generate(gateway)
        file_set = file_set or _without_traces(case, gateway)
        engine.commit(by_subject(key, generated.unsupported))
        for path, file in generated.file_set.files.items():
            logs = ("access_log.conf", "request_log.conf", "connection_log.conf")
            shared = path.endswith(("http.conf", *logs)) and "parameters" not in case
            if "/tls/" not in path and not shared:
                name = path.removeprefix("gatehouse/")
                files[f"nginx/{key[2]}/{name}"] = file.content.decode()
    statuses = _statuses(engine)
    files["status.yaml"] = _yaml(statuses)
    return files | _with_envoy(case, statuses), file_set


def served_by_envoy(
    engine: Engine, capabilities: envoy.EnvoyCapabilities = ENVOY
) -> list[tuple[Key, envoy.GeneratedResources]]:
    """Return the resource sets of Envoys."""
    return [
        (key, envoy.EnvoyGenerator(capabilities).generate(gateway))
        for key, gateway in _gateways(engine)
    ]


def _with_envoy(case: str, with_nginx: dict[str, Any]) -> dict[str, str]:
    engine, files = _engine(case), dict[str, str]()
    for key, generated in served_by_envoy(engine):
        engine.commit(by_subject(key, generated.unsupported))
        texts_by_kind = resource_fields.format_resources(
            generated.resources, whole="parameters" in case
        )
        files |= {
            f"envoy/{key[2]}/{name}.yaml": _yaml(resource)
            for name, resource in texts_by_kind.items()
        }
    others = {
        name: status for name, status in _statuses(engine).items() if with_nginx[name] != status
    }
    return files | ({"envoy/status.yaml": _yaml(others)} if others else {})


def _engine(case: str, *, rejects: bool = True, tried: bool = False) -> Engine:
    """Return the engine of a case. ``rejects``: its proxy rejects parts. ``tried``: it tests all of
    them again."""
    text = (HERE / case / "input.yaml").read_text(encoding="utf-8")
    usage = REPORTS if "usage-reports" in case else None
    engine = engine_of(
        text,
        gateway_api.ControllerSettings(
            bind="any",
            snippets="snippets" in case,
            counter="limits.example:8081" if "shared-limits" in case else "",
            usage=usage,
            external_names=("example.net",) if "external-names" in case else (),
        ),
    )
    rejected = HERE / case / "rejected.yaml"
    if rejects and rejected.exists():
        rejections = yaml.load(rejected.read_text(encoding="utf-8"), yaml.CSafeLoader)
        _reject(engine, rejections, tried=tried)
    return engine


def _reject(engine: Engine, rejections: list[dict[str, Any]], *, tried: bool) -> None:
    """Let the proxy of the only Gateway reject parts of each version, one after the other."""
    (key, gateway), *_ = _gateways(engine)
    quarantines = []
    for rejection in rejections:
        message, in_match = rejection.pop("message"), rejection.pop("in_match", False)
        is_credential = rejection.pop("credential", False)
        origin = Origin(namespace="ns", **rejection)
        names = [known.name for known in gateway.credentials if origin in known.origins]
        credential = names[0] if is_credential else ""
        part = port_part(origin.port) if origin.port else Suspect(origin)
        suspect = msgspec.structs.replace(part, in_match=in_match, credential=credential)
        quarantines.append(reject_part(engine, key, gateway, suspect, message))
        ((_, gateway),) = _gateways(engine)
    for quarantine in quarantines if tried else ():
        engine.commit(dict.fromkeys(quarantine.inputs))
        quarantine.verdicts.suspend(tuple(quarantine.verdicts.known))
        engine.commit(quarantine.inputs)
    findings = chain.from_iterable(quarantine.findings for quarantine in quarantines)
    engine.commit(by_subject(key, findings))
    origins = chain.from_iterable(quarantine.left_out for quarantine in quarantines)
    left_out = describe(sorted(origins))
    programmed = gateway_api.ProgrammedInput(programmed=True, left_out=left_out)
    engine.commit({("Programming", *key[1:]): programmed})


def _nginx_of(case: str) -> nginx.NginxCapabilities:
    plus = "plus" in case
    return nginx.NginxCapabilities.parse(
        "1.29.3 (nginx-plus-r36)" if plus else "1.31.3",
        MODULES[:1] if plus else MODULES,
        named_endpoints="named" in case or (plus and "actions" not in case),
        api_actions=plus,
        connectors=True,
        authenticators=True,
        pickers=True,
        access_log=True,
        failure_causes=True,
        traces="telemetry" in case,
    )


def _without_traces(case: str, gateway: GatewayConfiguration) -> FileSet:
    """Return the files for an NGINX without the module of traces, which machines lack."""
    able = msgspec.structs.replace(_nginx_of(case), traces=False)
    return nginx.NginxGenerator(able).generate(gateway).file_set


def _gateways(engine: Engine) -> list[tuple[Key, GatewayConfiguration]]:
    with engine.compile() as ask:
        compiled = [
            (key, ask(combined.compile_combined_gateway, key)) for key in ask(gateway_api.gateways)
        ]
    return [(key, gateway) for key, gateway in compiled if gateway is not None]


def _statuses(engine: Engine) -> dict[str, Any]:
    with engine.compile() as ask:
        statuses = {
            f"{key[0]} {key[2]}": combined.merge_combined_status(key[0], None, status, NOW)
            for key in ask(combined.status_subjects)
            if key[0] != "GatewayClass"
            and (status := ask(combined.desired_status, key)) is not None
        }
    for written in statuses.values():
        _shorten(written)
    return statuses


def _rejections(statuses: dict[str, Any]) -> set[tuple[str, str]]:
    """Return the object and message of each condition that reports a rejection of the object.

    References tell whether the configuration has another object.
    """

    def messages(value: Any) -> Iterator[str]:
        if isinstance(value, dict) and "message" in value:
            if REJECTED_BY in value["message"] and value["type"] != "ResolvedRefs":
                yield value["message"]
        elif isinstance(value, dict | list):
            for item in value.values() if isinstance(value, dict) else value:
                yield from messages(item)

    return {(title, text) for title, status in statuses.items() for text in messages(status)}


def _shown(value: Any) -> Any:
    """Return a value of the IR without the fields that have their default."""
    if isinstance(value, tuple):
        return [_shown(item) for item in value]
    if not isinstance(value, msgspec.Struct):
        return value
    fields = msgspec.structs.fields(value)
    shortened = {field.name: _shown(getattr(value, field.name)) for field in fields}
    kind = {"kind": type(value).__name__} if value.__struct_config__.tag else {}
    usual = {field.name: _shown(field.default) for field in fields}
    return kind | {name: it for name, it in shortened.items() if it != usual[name]}


def _yaml(value: Any) -> str:
    return yaml.dump(value, sort_keys=True, width=100, allow_unicode=True, Dumper=yaml.CSafeDumper)


def _shorten(value: Any) -> None:
    """Drop what is equal in every case."""
    if isinstance(value, dict):
        for key in ("lastTransitionTime", "observedGeneration"):
            value.pop(key, None)
        for key, usual in (("controllerName", gateway_api.NGINX), ("supportedKinds", HTTP_KINDS)):
            if value.get(key) == usual:
                value.pop(key)
        for item in value.values():
            _shorten(item)
    elif isinstance(value, list):
        for item in value:
            _shorten(item)


def existing(case: str) -> dict[str, str]:
    directory = HERE / case
    return {
        str(path.relative_to(directory)): path.read_text(encoding="utf-8")
        for path in directory.rglob("*")
        if path.is_file() and path.name not in ("input.yaml", "rejected.yaml")
    }


@pytest.mark.parametrize("case", CASES)
def test_output_matches_golden_files(case: str, request: pytest.FixtureRequest) -> None:
    texts, _ = outputs(case)
    if request.config.getoption("--refresh-golden"):
        for path in existing(case).keys() - texts.keys():
            (HERE / case / path).unlink()
        for path, text in texts.items():
            (HERE / case / path).parent.mkdir(parents=True, exist_ok=True)
            (HERE / case / path).write_text(text, encoding="utf-8")
    assert existing(case) == texts


def test_upstream_is_in_the_file_of_its_name() -> None:
    """By its name, agents find it for a test of the virtual hosts that changed."""
    paths = [*HERE.glob("*/nginx/*/upstreams/*.conf")]
    assert len(paths) > 50
    for path in paths:
        names = re.findall(r'^upstream "?([^"\s]+)"? \{', path.read_text(), re.MULTILINE)
        assert names in ([], [path.stem]), path


@pytest.mark.parametrize(
    "case", [case for case in CASES if (HERE / case / "rejected.yaml").exists()]
)
def test_statuses_report_rejections_while_objects_are_tried_again(case: str) -> None:
    """A new controller reads them, and the configuration has the objects."""
    tried = _engine(case, tried=True)
    assert _rejections(_statuses(tried)) == _rejections(_statuses(_engine(case)))
    assert _gateways(tried) == _gateways(_engine(case, rejects=False))


@pytest.mark.process
@pytest.mark.parametrize("case", CASES)
def test_nginx_accepts_every_golden_file(case: str, tmp_path: Path) -> None:
    _, bundle = outputs(case)
    if bundle is None:
        return
    resolver = "127.0.0.1:53" if "named" in case else ""
    result = nginx_check.check(bundle, tmp_path, resolver=resolver, plus="plus" in case)
    assert result.accepted, result.output
    assert "[warn]" not in result.output


@pytest.mark.process
async def test_envoy_accepts_every_golden_resource(tmp_path: Path) -> None:
    trusted = system_trust.system_bundle()
    assert trusted is not None
    able = envoy.EnvoyCapabilities(str(trusted), authenticators=True, runtime_limits=True)
    rejected = {}
    with tempfile.TemporaryDirectory(prefix="ghg-") as directory:
        async with envoys.running(Path(directory)) as running:
            served = [(c, g) for c in CASES for _, g in served_by_envoy(_engine(c), able)]
            for case, generated in served:
                running.ads.publish(envoys.on_free_ports(generated.resources))
                await running.ads.settled()
                if running.ads.refused:
                    rejected[case] = list(running.ads.refused)
            assert running.process.returncode is None
    assert rejected == {}
