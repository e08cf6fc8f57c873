"""The chart: rendered by the real helm, admitted by the schemas of Kubernetes, as golden files.

Each file of ``cases`` beside this is a case's values; ``expected`` holds what becomes of them.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import chart
import pytest
import yaml

from fakes.administrator import OPERATORS
from gatehouse.controller.provisioner.pod_security import violations
from kube_api_server.objects.served_resource import ServedResource
from kube_base.types.builtin_types import schemas
from kube_base.types.resource import Resource

ROOT = Path(__file__).parents[2]
CHART = ROOT / "charts" / "gatehouse"
HERE = Path(__file__).parent
CASES = sorted(path.stem for path in (HERE / "cases").glob("*.yaml"))
CACHED = ROOT / ".cache" / "helm" / "helm"
HELM = str(CACHED) if CACHED.exists() else shutil.which("helm")

pytestmark = pytest.mark.skipif(HELM is None, reason="no helm: make helm")


def helm(*words: str) -> str:
    """Run helm. Return its output."""
    assert HELM is not None
    done = subprocess.run([HELM, *words], capture_output=True, text=True, check=False)
    if done.returncode:
        raise AssertionError(done.stderr)
    return done.stdout


def rendered(*words: str) -> str:
    return helm(
        *("template", "gatehouse", str(CHART), "--namespace", "gatehouse-system"),
        *("--kube-version", "1.34", *words),
    )


def objects(*words: str) -> list[dict[str, Any]]:
    return [obj for obj in yaml.load_all(rendered(*words), yaml.CSafeLoader) if obj]


def test_helm_lint_reports_no_problem() -> None:
    assert "0 chart(s) failed" in helm("lint", "--strict", str(CHART))


@pytest.mark.parametrize("case", CASES)
def test_rendered_chart_matches_expected_objects(case: str, request: pytest.FixtureRequest) -> None:
    manifests = rendered("--values", str(HERE / "cases" / f"{case}.yaml"))
    expected = HERE / "expected" / f"{case}.yaml"
    if request.config.getoption("--refresh-golden"):
        expected.parent.mkdir(exist_ok=True)
        expected.write_text(manifests, encoding="utf-8")
    assert expected.read_text(encoding="utf-8") == manifests


def expected_objects(case: str) -> Iterator[dict[str, Any]]:
    """Yield the objects of a case, which the test above compares with those of helm."""
    text = (HERE / "expected" / f"{case}.yaml").read_text(encoding="utf-8")
    yield from yaml.load_all(text, yaml.CSafeLoader)


@pytest.mark.parametrize("case", CASES)
def test_rendered_objects_are_valid_for_kubernetes_schemas(case: str) -> None:
    for obj in expected_objects(case):
        group, _, version = str(obj["apiVersion"]).rpartition("/")
        if str(obj["apiVersion"]).startswith(OPERATORS):
            continue
        package = group.split(".")[0] or "core"
        schema = schemas.schema_of(f"{package}.{version}.{obj['kind']}")
        resource = Resource(group, version, "things", obj["kind"])
        served = ServedResource(resource=resource, schema=schema, storage_version=version)
        unknown = served.compiled.prepare(obj)
        where = f"{obj['kind']} {obj['metadata']['name']}"
        assert not unknown, f"{where}: {unknown}"
        problems = [str(problem) for problem in served.compiled.validate(obj, None)]
        assert not problems, f"{where}: {problems}"


@pytest.mark.parametrize("case", CASES)
def test_pods_meet_the_restricted_pod_security_standard(case: str) -> None:
    checked = 0
    for obj in expected_objects(case):
        spec = obj.get("spec") or {}
        if obj["kind"] == "CronJob":
            spec = spec["jobTemplate"]["spec"]
        if "template" in spec:
            checked += 1
            assert violations(spec["template"], "restricted") == []
    assert checked


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ("controller.replicaCount=-1", "/controller/replicaCount"),
        ("controller.replica=2", "/controller"),
        ("controller.gatewayClasses={Nginx}", "/controller/gatewayClasses/0"),
        ("controller.gatewayClasses={edge=haproxy}", "/controller/gatewayClasses/0"),
        ("controller.gatewayClasses=nginx", "/controller/gatewayClasses"),
        ("certificates.mode=magic", "/certificates/mode"),
        ("certificates.mode=existing", "/certificates/secretName"),
        ("image.repository=", "/image/repository"),
        ("dataPlanes.copiedSecrets[0].use=x", "/dataPlanes/copiedSecrets/0"),
        ("service.port=70000", "/service/port"),
        ("rateLimit.enabled=true", "/rateLimit/redis/secretName"),
        ("rateLimit.address=somewhere", "/rateLimit/address"),
        ("machines.service.nodePort=0", "/machines/service/nodePort"),
        ("machines.service.type=ExternalName", "/machines/service/type"),
        ("nameOverride=My_Name", "/nameOverride"),
        ("nameOverride=1abc", "/nameOverride"),
        ("imagePullSecrets={a b}", "/imagePullSecrets/0"),
        ("dataPlanes.nginx.pullPolicy=Always", "/dataPlanes/nginx"),
        ("certificates.secretName=My Secret", "/certificates/secretName"),
        ("certificates.certManager.duration=five", "/certificates/certManager/duration"),
        ("networkPolicy.metricsFrom[0].podselector.a=b", "/networkPolicy/metricsFrom/0"),
        ("rateLimit.redis.key=a b", "/rateLimit/redis/key"),
        ("image.digest=latest", "/image/digest"),
        ("image.tag=a b", "/image/tag"),
        ("metrics.podMonitor.interval=often", "/metrics/podMonitor/interval"),
        ("metrics.alerts.runbook=wiki", "/metrics/alerts/runbook"),
        ("dataPlanes.networkPolicy.enable=true", "/dataPlanes/networkPolicy"),
        ("dataPlanes.networkPolicy.egressTo=everything", "/dataPlanes/networkPolicy/egressTo"),
    ],
)
def test_invalid_values_are_rejected_with_their_path(values: str, message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        rendered("--set", values)


def test_plain_manifests_match_the_chart() -> None:
    assert HELM is not None
    expected = (ROOT / "deploy" / "gatehouse.yaml").read_text(encoding="utf-8")
    assert chart.manifests(HELM) == expected, "run make chart"


VALUES = yaml.load((CHART / "values.yaml").read_text(encoding="utf-8"), yaml.CSafeLoader)


@pytest.mark.parametrize(
    "section", [key for key, value in VALUES.items() if isinstance(value, dict)]
)
def test_missing_section_is_rejected_by_name(section: str) -> None:
    with pytest.raises(AssertionError, match=f"missing property '{section}'"):
        rendered("--set", f"{section}=null")


def leaves(values: dict[str, Any], at: str = "") -> list[tuple[str, Any]]:
    """Return every value by its path."""
    result = []
    for key, value in values.items():
        here = f"{at}.{key}" if at else key
        result += leaves(value, here) if isinstance(value, dict) and value else [(here, value)]
    return result


def test_explicit_default_values_change_nothing() -> None:
    words = [f"--set-json={path}={json.dumps(value)}" for path, value in leaves(VALUES)]
    assert rendered(*words) == rendered()


def test_every_value_is_used() -> None:
    text = "".join(template.read_text() for template in (CHART / "templates").iterdir())
    for path, _ in leaves(VALUES):
        parts = path.split(".")
        # What is handed over as a whole counts for what is in it.
        used = [".Values." + ".".join(parts[:end]) for end in range(len(parts), 0, -1)]
        assert any(re.search(rf"{re.escape(name)}(?![A-Za-z.])", text) for name in used), path


def test_pod_labels_cannot_override_selector_labels() -> None:
    label = r"controller.podLabels.app\.kubernetes\.io/name=other,controller.podLabels.team=tea"
    [deployment] = [obj for obj in objects("--set", label) if obj["kind"] == "Deployment"]
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    assert labels == {**deployment["spec"]["selector"]["matchLabels"], "team": "tea"}


def test_pod_annotations_override_default_annotations() -> None:
    note = r"controller.podAnnotations.prometheus\.io/scrape=no"
    [deployment] = [obj for obj in objects("--set", note) if obj["kind"] == "Deployment"]
    annotations = deployment["spec"]["template"]["metadata"]["annotations"]
    assert annotations == {"prometheus.io/scrape": "no", "prometheus.io/port": "8081"}
