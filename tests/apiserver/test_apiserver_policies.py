"""ValidatingAdmissionPolicies: selection and denial of requests."""

from __future__ import annotations

import aiohttp
import msgspec
import pytest

from fakes.inprocess import Server
from kube_api_server.admission_policies.matching import AdmissionAttributes, matches_resources
from kube_api_server.admission_policies.policy import check_policy

MAPS = "/api/v1/namespaces/default/configmaps"
ADMISSION = "/apis/admissionregistration.k8s.io/v1"

ATTRIBUTES = AdmissionAttributes(
    "CREATE", "apps", "v1", "deployments", "", "here", "one", True,
    {"metadata": {"labels": {"tier": "web"}}}, None, {"metadata": {"labels": {"env": "test"}}},
)  # fmt: skip


def rule(**more: object) -> dict[str, object]:
    plain = {"apiGroups": ["apps"], "apiVersions": ["v1"], "operations": ["CREATE"]}
    return {**plain, "resources": ["deployments"], **more}


@pytest.mark.parametrize(
    ("constraints", "expected"),
    [
        ({}, True),
        ({"resourceRules": [rule()]}, True),
        ({"resourceRules": [rule(operations=["UPDATE", "DELETE"])]}, False),
        ({"resourceRules": [rule(operations=["*"])]}, True),
        ({"resourceRules": [rule(apiGroups=["*"], resources=["*"])]}, True),
        ({"resourceRules": [rule(apiGroups=[""])]}, False),
        ({"resourceRules": [rule(resources=["deployments/status"])]}, False),
        ({"resourceRules": [rule(resources=["*/*"])]}, True),
        ({"resourceRules": [rule(resources=["deployments/*"])]}, True),
        ({"resourceRules": [rule(resourceNames=["two"])]}, False),
        ({"resourceRules": [rule(resourceNames=["two", "one"])]}, True),
        ({"resourceRules": [rule(scope="Cluster")]}, False),
        ({"resourceRules": [rule(scope="Namespaced")]}, True),
        ({"resourceRules": [rule(apiVersions=["v1beta1"])]}, True),
        ({"resourceRules": [rule(apiVersions=["v1beta1"])], "matchPolicy": "Exact"}, False),
        ({"resourceRules": [rule(apiVersions=["v7"])]}, False),
        ({"resourceRules": [rule()], "excludeResourceRules": [rule()]}, False),
        ({"namespaceSelector": {"matchLabels": {"env": "test"}}}, True),
        ({"namespaceSelector": {"matchLabels": {"env": "live"}}}, False),
        ({"objectSelector": {"matchLabels": {"tier": "web"}}}, True),
        (
            {"objectSelector": {"matchExpressions": [{"key": "tier", "operator": "DoesNotExist"}]}},
            False,
        ),
    ],
)
def test_policy_matches_by_its_constraints(constraints: dict[str, object], expected: bool) -> None:
    def serves(group: str, version: str, plural: str) -> bool:
        return (group, plural) == ("apps", "deployments") and version in ("v1", "v1beta1")

    assert matches_resources(constraints, ATTRIBUTES, serves) is expected


def test_star_rule_does_not_match_subresources() -> None:
    attributes = msgspec.structs.replace(ATTRIBUTES, subresource="status")
    every = {"resourceRules": [rule(resources=["*"])]}
    assert not matches_resources(every, attributes, lambda *_: True)
    assert matches_resources(
        {"resourceRules": [rule(resources=["*/status"])]}, attributes, lambda *_: True
    )


def policy(**spec: object) -> dict[str, object]:
    maps = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["*"]}
    constraints = {"resourceRules": [{**maps, "resources": ["configmaps"]}]}
    return {"metadata": {"name": "p"}, "spec": {"matchConstraints": constraints, **spec}}


def binding(*actions: str, **spec: object) -> dict[str, object]:
    whole = {"policyName": "p", "validationActions": list(actions), **spec}
    return {"metadata": {"name": "b"}, "spec": whole}


async def post(http: aiohttp.ClientSession, path: str, body: object) -> tuple[int, dict[str, str]]:
    async with http.post(path, json=body) as response:
        answer = await response.json()
        result = {"message": answer.get("message", ""), "reason": answer.get("reason", "")}
        return response.status, {**result, "warning": response.headers.get("Warning", "")}


async def install(http: aiohttp.ClientSession, *objects: dict[str, object]) -> None:
    for obj, plural in zip(objects, ("policies", "policybindings"), strict=True):
        status, answer = await post(http, f"{ADMISSION}/validatingadmission{plural}", obj)
        assert status == 201, answer


def config_map(name: str, **data: str) -> dict[str, object]:
    return {"metadata": {"name": name}, "data": data}


async def test_denied_object_is_not_written(server: Server) -> None:
    validations = [
        {
            "expression": "object.data.size() <= variables.most",
            "messageExpression": "'at most ' + string(variables.most) + ' for ' + "
            "request.userInfo.username",
            "reason": "Forbidden",
        }
    ]
    variables = [{"name": "most", "expression": "oldObject == null ? 1 : 2"}]
    conditions = [{"name": "mine", "expression": "request.operation != 'DELETE'"}]
    policy_object = policy(validations=validations, variables=variables, matchConditions=conditions)
    async with server.raw() as http:
        await install(http, policy_object, binding("Deny"))
        status, answer = await post(http, MAPS, config_map("c", a="1", b="2"))
        assert (status, answer["reason"]) == (403, "Forbidden")
        assert answer["message"] == (
            "configmaps \"c\" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied "
            "request: at most 1 for gatehouse-admin"
        )
        assert (await post(http, MAPS, config_map("c", a="1")))[0] == 201
        async with http.put(f"{MAPS}/c", json=config_map("c", a="1", b="2")) as response:
            assert response.status == 200
        async with http.delete(f"{MAPS}/c") as response:
            assert response.status == 200
        async with http.delete(f"{ADMISSION}/validatingadmissionpolicybindings/b") as response:
            assert response.status == 200
        assert (await post(http, MAPS, config_map("c", a="1", b="2")))[0] == 201


async def test_policies_apply_to_deletions(server: Server) -> None:
    validations = [
        {"expression": "object != null || oldObject.metadata.name != 'kept'", "message": "stays"}
    ]
    async with server.raw() as http:
        await install(http, policy(validations=validations), binding("Deny"))
        assert (await post(http, MAPS, config_map("kept")))[0] == 201
        async with http.delete(f"{MAPS}/kept") as response:
            assert response.status == 422
            assert "denied request: stays" in (await response.json())["message"]
        async with http.delete(f"{ADMISSION}/validatingadmissionpolicies/p") as response:
            assert response.status == 200
        async with http.delete(f"{MAPS}/kept") as response:
            assert response.status == 200


async def test_policy_binding_warns_with_parameters(server: Server) -> None:
    policy_object = policy(
        paramKind={"apiVersion": "v1", "kind": "ConfigMap"},
        validations=[{"expression": "object.metadata.name.startsWith(params.data.prefix)"}],
        matchConditions=[{"name": "others", "expression": "request.name != 'params'"}],
    )
    reference = {"name": "params", "parameterNotFoundAction": "Deny"}
    async with server.raw() as http:
        await install(http, policy_object, binding("Warn", paramRef=reference))
        status, answer = await post(http, MAPS, config_map("early"))
        assert status == 201
        assert "no params found" in answer["warning"]
        assert (await post(http, MAPS, config_map("params", prefix="x-")))[0] == 201
        assert (await post(http, MAPS, config_map("x-1")))[1]["warning"] == ""
        status, answer = await post(http, MAPS, config_map("y-1"))
        assert status == 201
        assert "failed expression: object.metadata.name.startsWith" in answer["warning"]


@pytest.mark.parametrize(("fail", "status"), [("Fail", 422), ("Ignore", 201)])
async def test_failing_expression_follows_failure_policy(
    server: Server, fail: str, status: int
) -> None:
    policy_object = policy(
        failurePolicy=fail, validations=[{"expression": "object.spec.nothing == 1"}]
    )
    async with server.raw() as http:
        await install(http, policy_object, binding("Deny"))
        got, answer = await post(http, MAPS, config_map("c"))
        assert got == status
        assert (status == 201) or "resulted in error: no such key: spec" in answer["message"]


@pytest.mark.parametrize(
    ("spec", "field", "words"),
    [
        ({}, "spec.validations", "Required value"),
        ({"validations": [{"expression": " "}]}, "spec.validations[0].expression", "Required"),
        ({"validations": [{"expression": "1 +"}]}, "spec.validations[0].expression", "compilation"),
        (
            {"validations": [{"expression": "authorizer.path('/x').check('get').allowed()"}]},
            "spec.validations[0].expression",
            "not supported",
        ),
        (
            {
                "validations": [{"expression": "true"}],
                "variables": [{"name": "v", "expression": "("}],
            },
            "spec.variables[0].expression",
            "compilation failed",
        ),
    ],
)
def test_invalid_policy_is_rejected_with_field(
    spec: dict[str, object], field: str, words: str
) -> None:
    (cause,) = check_policy({"metadata": {"name": "p"}, "spec": spec}, None)
    assert cause.field == field
    assert words in cause.message


CONFUSED = [
    {
        "expression": "object.spec.replicas > '1'",
        "messageExpression": "'wants more, got ' + object.spec.replicas",
    },
    {"expression": "object.spec.colour == 'red'"},
    {"expression": "object.metadata.labels['a'] == 'b' && oldObject.spec.paused && request.x > 1"},
]


async def test_status_of_a_policy_names_expressions_of_wrong_types(server: Server) -> None:
    constraints = {"resourceRules": [rule()]}
    spec = {"matchConstraints": constraints, "validations": CONFUSED}
    path = f"{ADMISSION}/validatingadmissionpolicies"
    async with server.raw() as http:
        async with http.post(path, json={"metadata": {"name": "p"}, "spec": spec}) as response:
            status = (await response.json())["status"]
        patch = {"spec": {"validations": [{"expression": "object.spec.replicas > 1"}]}}
        headers = {"Content-Type": "application/merge-patch+json"}
        async with http.patch(f"{path}/p", json=patch, headers=headers) as response:
            corrected = (await response.json())["status"]
    warnings = status["typeChecking"]["expressionWarnings"]
    assert [warning["fieldRef"] for warning in warnings] == [
        "spec.validations[0].expression",
        "spec.validations[0].messageExpression",
        "spec.validations[1].expression",
    ]
    for warning, text in zip(
        warnings,
        (
            "found no matching overload for '_>_' applied to '(int, string)'",
            "found no matching overload for '_+_' applied to '(string, int)'",
            "undefined field 'colour'",
        ),
        strict=True,
    ):
        assert warning["warning"].startswith("apps/v1, Kind=Deployment: compilation failed: ERROR")
        assert text in warning["warning"]
    assert corrected == {"observedGeneration": 2, "typeChecking": {}}
