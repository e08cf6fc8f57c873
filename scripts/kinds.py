"""Write ``kinds.txt``: the types of Kubernetes' built-in kinds, as facts in a notation of our own.

Run by `make kinds` on a machine with Go, for a newer release of Kubernetes. It reads the
published OpenAPI documents (fields, defaults, how lists are merged) and protobuf definitions (field
numbers) of one Kubernetes release and keeps only names, types, numbers and merge rules.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

KUBERNETES = "1.34.3"

ROOTS = {
    "api__v1": (
        "Namespace Service Endpoints Secret ConfigMap ServiceAccount Pod Node Event ResourceQuota "
        "PodTemplate ReplicationController PersistentVolumeClaim"
    ),
    "apis__apps__v1": "Deployment DaemonSet ReplicaSet",
    "apis__autoscaling__v1": "HorizontalPodAutoscaler",
    "apis__autoscaling__v2": "HorizontalPodAutoscaler",
    "apis__policy__v1": "PodDisruptionBudget",
    "apis__discovery.k8s.io__v1": "EndpointSlice",
    "apis__flowcontrol.apiserver.k8s.io__v1": "FlowSchema PriorityLevelConfiguration",
    "apis__events.k8s.io__v1": "Event",
    "apis__coordination.k8s.io__v1": "Lease",
    "apis__batch__v1": "Job CronJob",
    "apis__certificates.k8s.io__v1": "CertificateSigningRequest",
    "apis__networking.k8s.io__v1": "NetworkPolicy Ingress IngressClass",
    "apis__node.k8s.io__v1": "RuntimeClass",
    "apis__resource.k8s.io__v1": "ResourceClaim ResourceClaimTemplate DeviceClass ResourceSlice",
    "apis__scheduling.k8s.io__v1": "PriorityClass",
    "apis__storage.k8s.io__v1": "CSINode StorageClass",
    "apis__apiregistration.k8s.io__v1": "APIService",
    "apis__rbac.authorization.k8s.io__v1": "Role ClusterRole RoleBinding ClusterRoleBinding",
    "apis__apiextensions.k8s.io__v1": "CustomResourceDefinition",
    "apis__admissionregistration.k8s.io__v1": (
        "ValidatingAdmissionPolicy ValidatingAdmissionPolicyBinding "
        "ValidatingWebhookConfiguration MutatingWebhookConfiguration"
    ),
    "apis__authentication.k8s.io__v1": "TokenReview SelfSubjectReview",
    "apis__authorization.k8s.io__v1": (
        "SubjectAccessReview LocalSubjectAccessReview SelfSubjectAccessReview "
        "SelfSubjectRulesReview"
    ),
}
YOUNGER_KUBERNETES = "1.37.2"
YOUNGER_ROOTS = {"apis__certificates.k8s.io__v1": "ClusterTrustBundle"}
"""Kinds that only this release serves."""

META = "io.k8s.apimachinery.pkg.apis.meta.v1"
ALSO = (
    *(f"{META}.{kind}" for kind in ("DeleteOptions", "PartialObjectMetadata", "Status")),
    "io.k8s.api.authentication.v1.TokenRequest",
    "io.k8s.api.autoscaling.v1.Scale",
    "io.k8s.api.policy.v1.Eviction",
)
UNPUBLISHED = {
    f"{META}.PartialObjectMetadata": {"properties": {"metadata": {"$ref": f"{META}.ObjectMeta"}}}
}
"""Types that no OpenAPI document has."""

SCALARS = {
    "io.k8s.apimachinery.pkg.api.resource.Quantity": "quantity",
    f"{META}.FieldsV1": "fields",
    f"{META}.MicroTime": "microtime",
    f"{META}.Time": "time",
    "io.k8s.apimachinery.pkg.runtime.RawExtension": "raw",
    "io.k8s.apimachinery.pkg.util.intstr.IntOrString": "intstr",
}
PREFIXES = (
    ("io.k8s.apimachinery.pkg.apis.meta.v1.", "meta."),
    ("io.k8s.apiextensions-apiserver.pkg.apis.", ""),
    ("io.k8s.kube-aggregator.pkg.apis.", ""),
    ("io.k8s.api.", ""),
)
RENAMED = {"$ref": "ref", "$schema": "schema"}
"""Fields whose name in JSON is not the one in protobuf."""
ZEROS = ("string", "int32", "int64", "bool", "double")

Object = dict[str, Any]


def module(name: str, version: str) -> Path:
    """Return the directory of a Go module; download it first if necessary."""
    with tempfile.TemporaryDirectory() as scratch:
        command = ["go", "mod", "download", "-json", f"{name}@v{version}"]
        answer = subprocess.run(command, cwd=scratch, capture_output=True, check=True)
    return Path(json.loads(answer.stdout)["Dir"])


def short(name: str) -> str:
    """Return the short name of a type."""
    for prefix, replacement in PREFIXES:
        if name.startswith(prefix):
            return replacement + name[len(prefix) :]
    raise ValueError(name)


def schemas(version: str, documents: dict[str, str]) -> tuple[Object, list[str]]:
    """Return all OpenAPI types of a release and the names of those of its served kinds."""
    kubernetes = module("k8s.io/kubernetes", version)
    result: Object = {}
    roots: list[str] = []
    for document, kinds in documents.items():
        path = kubernetes / "api" / "openapi-spec" / "v3" / f"{document}_openapi.json"
        types = json.loads(path.read_text())["components"]["schemas"]
        result |= types
        api_version = document.split("__")[-1]
        for kind in kinds.split():
            group = document.split("__")[1].split(".")[0] if "apis" in document else "core"
            ending = f".{group}.{api_version}.{kind}"
            roots += [name for name in types if name.endswith(ending)]
    return result, roots


class Message:
    """A protobuf message: its fields, and which scalars are pointers in Go."""

    def __init__(self, text: str, package: str) -> None:
        self.package = package
        self.fields: dict[str, tuple[str, str]] = {}
        for kind, name, number in re.findall(r"([\w.<>, ]+) (\w+) = (\d+);", text):
            self.fields[name.lower()] = (kind.split()[-1], number)


Fields = set[tuple[str, str]]
"""Fields by type and name."""


class GoTypes:
    """Protobuf messages of a release by our type name, and what its Go types say about fields."""

    def __init__(self, version: str) -> None:
        self.messages: dict[str, Message] = {}
        self.pointers: Fields = set()
        """Pointers. A pointer's zero is a value; any other zero means nothing."""
        self.always: Fields = set()
        """Fields that Go encodes even if they have their zero value, such as null for a time."""
        self._embedded: list[tuple[str, str]] = []
        for name, sub, prefixed in (
            ("k8s.io/api", "", ""),
            ("k8s.io/apimachinery", "pkg/apis/meta/v1", "meta."),
            ("k8s.io/apiextensions-apiserver", "pkg/apis/apiextensions/v1", "apiextensions.v1."),
            ("k8s.io/kube-aggregator", "pkg/apis/apiregistration/v1", "apiregistration.v1."),
        ):
            base = module(name, version.replace("1.", "0.", 1))
            for path in sorted((base / sub).rglob("generated.proto")):
                prefix = prefixed or ".".join(path.parent.relative_to(base).parts) + "."
                text = re.sub(r"//[^\n]*", "", path.read_text())
                for message in re.finditer(r"message (\w+) \{(.*?)\n\}", text, re.DOTALL):
                    self.messages[prefix + message[1]] = Message(message[2], prefix)
                for source in path.parent.glob("types*.go"):
                    self._read(source.read_text(), prefix)
        for outer, inner in self._embedded:
            for fields in (self.pointers, self.always):
                fields |= {(outer, field) for name, field in fields if name == inner}

    def _read(self, text: str, prefix: str) -> None:
        for name, body in re.findall(r"type (\w+) struct \{(.*?)\n\}", text, re.DOTALL):
            fields = re.findall(r"\n\t\w+\s+(\S+)\s+`[^`]*json:\"([^,\"]+)([^\"]*)", body)
            embedded = re.findall(r"\n\t(\w+)\s+`json:\",inline", body)
            self._embedded += [(prefix + name, prefix + inner) for inner in embedded]
            for kind, field, options in fields:
                struct = re.fullmatch(r"(\w+\.)?(Micro)?Time", kind) and "omitzero" not in options
                if kind.startswith("*"):
                    self.pointers.add((prefix + name, field))
                elif struct or "omit" not in options:
                    self.always.add((prefix + name, field))

    def add(self, younger: GoTypes) -> None:
        """Add the types of a younger release. Types of both are those of the older."""
        self.pointers |= {pair for pair in younger.pointers if pair[0] not in self.messages}
        self.always |= {pair for pair in younger.always if pair[0] not in self.messages}
        self.messages = younger.messages | self.messages


def numbers_of(
    name: str, known: dict[str, Message], json_names: set[str], depth: int = 2
) -> dict[str, str]:
    """Return the field numbers of a type; ``2.5``: field 5 of the embedded message in field 2."""
    message = known.get(name)
    if message is None:
        return {}
    result: dict[str, str] = {}
    for field, (kind, number) in message.fields.items():
        inner = message.package + kind
        if field not in json_names and inner in known and depth:
            for nested, path in numbers_of(inner, known, json_names, depth - 1).items():
                result.setdefault(nested, f"{number}.{path}")
        else:
            result[field] = number
    return result


def type_of(schema: Object, types: list[str]) -> str:
    """Return the type of a field in the table's notation; add types it refers to to ``types``."""
    for choice in schema.get("allOf", ()):
        schema = {**schema, **choice}
    if "$ref" in schema:
        full = schema["$ref"].rpartition("/")[2]
        if full in SCALARS:
            return SCALARS[full]
        types.append(full)
        return short(full)
    kind, form = schema.get("type"), schema.get("format")
    if kind == "array":
        return "[]" + type_of(schema["items"], types)
    if kind == "object" and "additionalProperties" in schema:
        return "{}" + type_of(schema["additionalProperties"], types)
    if kind == "string":
        return {"byte": "bytes"}.get(form or "", "string")
    return {"integer": form or "int64", "number": "double", "boolean": "bool"}.get(
        kind or "", "any"
    )


def proto_name(field: str) -> str:
    """Return the protobuf name of a JSON field in lower case.

    Some names in protobuf begin with an upper-case letter, like those in Go.
    """
    return RENAMED.get(field, field.replace("-", "")).lower()


def flags(name: str, schema: Object, required: list[str]) -> list[str]:
    """Return the remaining flags of a field."""
    result = ["required"] if name in required else []
    list_type = schema.get("x-kubernetes-list-type")
    if list_type == "map":
        result.append("map=" + ",".join(schema["x-kubernetes-list-map-keys"]))
    elif list_type == "set" or schema.get("x-kubernetes-map-type") == "atomic":
        result.append(list_type or "atomic")
    if "merge" in schema.get("x-kubernetes-patch-strategy", ""):
        result.append("merge=" + schema.get("x-kubernetes-patch-merge-key", ""))
    if "retainKeys" in schema.get("x-kubernetes-patch-strategy", ""):
        result.append("retainKeys")
    default = schema.get("default")
    if default not in (None, {}, "", 0):
        result.append("default=" + json.dumps(default))
    return result


def main() -> None:
    """Write the table to the path given."""
    types, waiting = schemas(KUBERNETES, ROOTS)
    younger_types, younger_roots = schemas(YOUNGER_KUBERNETES, YOUNGER_ROOTS)
    types = younger_types | types | UNPUBLISHED
    go = GoTypes(KUBERNETES)
    go.add(GoTypes(YOUNGER_KUBERNETES))
    waiting += [*ALSO, *younger_roots]
    lines = [f"# Kubernetes {KUBERNETES}. Written by scripts/kinds.py; notation: types.py."]
    done: set[str] = set()
    texts: dict[str, list[str]] = {}
    while waiting:
        full = waiting.pop()
        if full in done or full in SCALARS:
            continue
        done.add(full)
        schema = types[full]
        name = short(full)
        atomic = " atomic" if schema.get("x-kubernetes-map-type") == "atomic" else ""
        text = texts[name] = [name + atomic]
        if "properties" not in schema:
            text.append("  * any")
        fields = schema.get("properties", {})
        numbers = numbers_of(name, go.messages, set(map(proto_name, fields)))
        for field, inner in fields.items():
            if field in ("kind", "apiVersion") and "x-kubernetes-group-version-kind" in schema:
                continue
            kind = type_of(inner, waiting)
            parts = [field, numbers.get(proto_name(field), "0"), kind]
            required = schema.get("required", [])
            if (name, field) in go.pointers:
                parts.append("pointer")
            # Structs are always there, and required scalars are in every valid object.
            is_struct = kind in ("raw", "any", "intstr") or re.match(r"\w+\.", kind)
            implied = is_struct or (kind in ZEROS and field in required)
            if (name, field) in go.always and not implied:
                parts.append("always")
            text.append("  " + " ".join(parts + flags(field, inner, required)))
    for name in sorted(texts):
        lines += texts[name]
    Path(sys.argv[1]).write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
