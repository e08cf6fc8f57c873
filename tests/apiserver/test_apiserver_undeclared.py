"""CEL rules that select fields which their schema does not declare, and results of rules.

The embedded API server and a real kube-apiserver reject the same rules and the same objects.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fakes.kube_apiserver import KubeApiserver
from fakes.kubectls import Kubectl, newest
from kube_api_server.objects import crd_validation
from kube_api_server.structural.cel_validation import evaluate_rules
from kube_api_server.structural.schema_node import node_of

BUNDLED = Path(__file__).parents[2] / "src" / "gatehouse" / "apiserver_extension" / "bundled"
ANY: dict[str, Any] = {"x-kubernetes-preserve-unknown-fields": True}
STRING = {"type": "string", "maxLength": 8}
ITEM = {"type": "object", "properties": {"name": STRING, "const": STRING, "value": ANY}}
LIST = {"type": "array", "maxItems": 4, "items": ITEM}
OF_TYPED = {"type": "object", "maxProperties": 4, "additionalProperties": ITEM}
SPEC = {
    "type": "object",
    "properties": {
        "name": STRING,
        "namespace": STRING,
        "while": LIST,
        "function": OF_TYPED,
        "import": ITEM,
        "a-b": STRING,
        "free": ANY,
        "count": {"x-kubernetes-int-or-string": True},
        "loose": {"type": "object", **ANY},
        "resource": {"type": "object", "x-kubernetes-embedded-resource": True, **ANY},
        "list": LIST,
        "freeList": {"type": "array", "maxItems": 4, "items": ANY},
        "map": OF_TYPED,
        "freeMap": {"type": "object", "maxProperties": 4, "additionalProperties": ANY},
        "nested": {"type": "array", "maxItems": 4, "items": LIST},
    },
}

CASES: list[tuple[str, str]] = [
    ("has(self.name) && self.name == 'x'", ""),
    ("has(self.__namespace__) && has(self.a__dash__b)", ""),
    ("self.namespace == self.__namespace__ && has(self.namespace)", ""),
    ("self.?namespace.orValue('') == 'x'", ""),
    ("self.__while__.all(each, each.name == 'x') && self.while.size() == 1", ""),
    ("self.function == self.__function__ && self.function.x.name == 'x'", ""),
    ("self.import == self.__import__ && self.import.name == 'x'", ""),
    ("self.import.value == 1", "1:12: undefined field 'value'"),
    ("self.nested.all(a, a.all(b, b.const == b.__const__))", ""),
    ("self.a-b == 'x'", "1:5: undefined field 'a'"),
    ("self.free == 1", "1:5: undefined field 'free'"),
    ("has(self.free)", "undefined field 'free'"),
    ("!has(self.name) || type(self.free) == list", "1:29: undefined field 'free'"),
    ("type(self.count) == int", ""),
    ("self.loose == self.loose", ""),
    ("self.loose.x == 1", "1:11: undefined field 'x'"),
    ("self.resource.metadata.name == 'x' && self.resource.kind == 'y'", ""),
    ("self.resource.spec == 1", "1:14: undefined field 'spec'"),
    ("self.list.all(each, each.name == 'x')", ""),
    ("self.list.all(each, each.value == 1)", "1:25: undefined field 'value'"),
    ("self.list[0].value == 1", "1:13: undefined field 'value'"),
    ("self.list.exists_one(each, has(each.value))", "undefined field 'value'"),
    ("self.freeList.size() == 0", "1:5: undefined field 'freeList'"),
    ("self.map.all(key, self.map[key].name == key)", ""),
    ("self.map.key.name == 'x'", ""),
    ("self.map.all(key, self.map[key].value == 1)", "undefined field 'value'"),
    (
        "self.list.filter(each, each.name == 'x').size() == self.list.map(each, each.value).size()",
        "1:76: undefined field 'value'",
    ),
    ("self.list.all(self, self.value == 1)", "1:25: undefined field 'value'"),
    ("[self.free] == [1]", "1:6: undefined field 'free'"),
    ("{'a': self.free} == {'a': 1}", "1:11: undefined field 'free'"),
    ("'x'.startsWith(self.free)", "1:20: undefined field 'free'"),
    ("string(self.free).startsWith('x')", "1:12: undefined field 'free'"),
    ("self.freeMap.x == 1", "1:5: undefined field 'freeMap'"),
    ("self.nested.all(a, a.all(b, b.name == 'x'))", ""),
    ("self.nested.all(a, a.all(b, b.value == 1))", "1:30: undefined field 'value'"),
    ("(has(self.name) ? self.list[0] : self.list[1]).value == 1", "undefined field 'value'"),
    ("self.?free.hasValue()", "undefined field 'free'"),
    ("self.none == 1", "1:5: undefined field 'none'"),
    ("self.name == oldSelf.free", "1:21: undefined field 'free'"),
    ("self.name == 'x' &&\n  self.free == 1", "2:7: undefined field 'free'"),
    ("'\u00e9' == self.free", "1:12: undefined field 'free'"),
]
AT_ROOT: list[tuple[str, str]] = [
    ("self.metadata.name == 'x' && self.kind == 'Thing' && self.spec.name == 'x'", ""),
    ("self.metadata.labels.size() == 0", "1:14: undefined field 'labels'"),
    ("self.spec.free == 1", "1:10: undefined field 'free'"),
]
QUALIFIED = "self.map.all(k, !format.qualifiedName().validate(k).hasValue())"
EVALUATED: list[tuple[str, dict[str, Any], bool]] = [
    ("self.namespace == 'x' && self.__namespace__ == 'x'", {"namespace": "x"}, True),
    ("self.namespace == 'x' || self.__namespace__ == 'x'", {"namespace": "y"}, False),
    ("has(self.namespace) || has(self.__namespace__)", {"name": "x"}, False),
    ("self.list.all(each, has(each.const) && each.const == 'x')", {"list": [{}]}, False),
    ("self.list.map(each, each.const) == ['x']", {"list": [{"const": "x"}]}, True),
    ("self.nested.all(a, a.all(b, b.const == 'x'))", {"nested": [[{"const": "y"}]]}, False),
    ("self.function.k.const == 'x'", {"function": {"k": {}}}, False),
    ("self.function.const.name == 'x'", {"function": {"const": {"name": "x"}}}, True),
    ("has(self.function.__const__)", {"function": {"const": {"name": "x"}}}, False),
    ("!format.dns1123Label().validate(self.name).hasValue()", {"name": "a-b"}, True),
    ("!format.dns1123Label().validate(self.name).hasValue()", {"name": "-a"}, False),
    (QUALIFIED, {"map": {"a/b": {}}}, True),
    (QUALIFIED, {"map": {"-a": {}}}, False),
    (QUALIFIED, {"map": {f"{'p' * 63}.example/{'n' * 63}": {}}}, True),
    (QUALIFIED, {"map": {"n" * 64: {}}}, False),
    (QUALIFIED, {"map": {f"{'p.' * 126}pp/n": {}}}, False),
    ("format.labelValue().validate(self.name).value().size() == 1", {"name": "_"}, True),
    ("format.labelValue().validate(self.name).value().size() == 1", {"name": "a"}, False),
]
"""Rules with names that are reserved words or with formats, a spec, and whether the rule holds."""


def crd(number: int, rule: str, *, at_root: bool = False) -> dict[str, Any]:
    """Build a CRD whose schema has one rule."""
    rules = {"x-kubernetes-validations": [{"rule": rule, "message": "wrong"}]}
    spec = SPEC if at_root else SPEC | rules
    root = {"type": "object", "properties": {"spec": spec}} | (rules if at_root else {})
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": root},
    }
    plural, kind = f"things{number}", f"Thing{number}"
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.undeclared.example"},
        "spec": {
            "group": "undeclared.example",
            "names": {
                "plural": plural,
                "kind": kind,
                "singular": kind.lower(),
                "listKind": f"{kind}List",
            },
            "scope": "Namespaced",
            "versions": [version],
        },
    }


DEFINITIONS = [
    (crd(number, rule, at_root=at_root), message)
    for at_root, cases in ((False, CASES), (True, AT_ROOT))
    for number, (rule, message) in enumerate(cases)
]
IDS = [rule for rule, _ in (*CASES, *AT_ROOT)]


@pytest.mark.parametrize(("definition", "expected"), DEFINITIONS, ids=IDS)
def test_embedded_server_rejects_undeclared_fields(
    definition: dict[str, Any], expected: str
) -> None:
    causes = [cause.message for cause in crd_validation.check_crd(definition, None)]
    if not expected:
        assert causes == []
        return
    [message] = causes
    assert f"{expected}\n | " in message


def test_embedded_server_names_every_undeclared_field() -> None:
    definition = crd(0, "self.free == 1 || self.none == 1")
    [cause] = crd_validation.check_crd(definition, None)
    assert cause.field.endswith("properties[spec].x-kubernetes-validations[0].rule")
    assert "1:5: undefined field 'free'" in cause.message
    assert "1:23: undefined field 'none'" in cause.message


def test_embedded_server_checks_message_expressions() -> None:
    definition = crd(0, "has(self.name)")
    spec = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    spec["x-kubernetes-validations"][0]["messageExpression"] = "'not ' + string(self.free)"
    [cause] = crd_validation.check_crd(definition, None)
    assert cause.field.endswith("x-kubernetes-validations[0].messageExpression")
    assert "undefined field 'free'" in cause.message


def test_embedded_server_accepts_rule_nested_too_deeply_to_check() -> None:
    rule = "".join(f"self.list.all(each{number}, " for number in range(25)) + "true" + ")" * 25
    definition = crd(0, rule)
    assert list(crd_validation.check_crd(definition, None)) == []


@pytest.mark.parametrize("path", sorted(BUNDLED.iterdir()), ids=lambda path: str(path.stem))
def test_bundled_crds_declare_all_fields_of_their_rules(path: Path) -> None:
    definition = json.loads(path.read_text(encoding="utf-8"))
    assert list(crd_validation.check_crd(definition, None)) == []


@pytest.mark.parametrize(("rule", "spec", "holds"), EVALUATED)
def test_embedded_server_evaluates_rules(rule: str, spec: dict[str, Any], holds: bool) -> None:
    [version] = crd(0, rule)["spec"]["versions"]
    node = node_of(version["schema"]["openAPIV3Schema"])
    assert (evaluate_rules(node, {"spec": spec}, None) == []) is holds


@pytest.mark.parametrize("number", range(len(EVALUATED)), ids=[rule for rule, _, _ in EVALUATED])
def test_kubernetes_evaluates_rules(kube_apiserver: KubeApiserver, number: int) -> None:
    rule, spec, holds = EVALUATED[number]
    home = kube_apiserver.kubeconfig.parent
    kubectl = Kubectl(newest(), kube_apiserver.kubeconfig, home, "default")
    definition = crd(100 + number, rule)
    kubectl("create", "--filename", "-", stdin=definition)
    name = definition["metadata"]["name"]
    kubectl("wait", "--for=condition=Established", f"crd/{name}")
    kind = definition["spec"]["names"]["kind"]
    thing = {"apiVersion": "undeclared.example/v1", "kind": kind, "metadata": {"name": "thing"}}
    words = ("create", "--dry-run=server", "--filename", "-")
    if holds:
        kubectl(*words, stdin=thing | {"spec": spec})
    else:
        assert "spec: Invalid value" in kubectl.fails(*words, stdin=thing | {"spec": spec})


@pytest.mark.parametrize(("definition", "message"), DEFINITIONS, ids=IDS)
def test_kubernetes_rejects_undeclared_fields(
    kube_apiserver: KubeApiserver, definition: dict[str, Any], message: str
) -> None:
    home = kube_apiserver.kubeconfig.parent
    kubectl = Kubectl(newest(), kube_apiserver.kubeconfig, home, "default")
    words = ("create", "--dry-run=server", "--filename", "-")
    if not message:
        kubectl(*words, stdin=definition)
        return
    assert f"{message}\n | " in kubectl.fails(*words, stdin=definition)
