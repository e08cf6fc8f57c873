"""Enforcement of the stored policies and bindings on writes."""

from __future__ import annotations

from collections.abc import Iterator

import structlog

from kube_api_server.admission_policies.matching import (
    ADMISSION_GROUP,
    AdmissionAttributes,
    matches_resources,
)
from kube_api_server.admission_policies.policy import CODES, AdmissionPolicy, Denial
from kube_api_server.builtin.validation import selects_labels
from kube_api_server.errors import Cause, StatusError
from kube_api_server.identity.users import SYSTEM
from kube_api_server.objects.admission import NAMESPACES_PREFIX
from kube_api_server.objects.registry import Registry
from kube_api_server.objects.write_request import WriteRequest
from kube_api_server.storage.entries import StoreEvent
from kube_api_server.storage.store import ObjectStore
from kube_base.types.objects import Object

log = structlog.get_logger("apiserver")


class Policies:
    """Index of the stored policies and bindings, and validation of writes."""

    def __init__(self, store: ObjectStore, registry: Registry) -> None:
        self._store, self._registry = store, registry
        self._policies: dict[str, AdmissionPolicy] = {}
        self._bindings: dict[str, Object] = {}
        for plural, changed in (
            ("validatingadmissionpolicies", self._on_policy),
            ("validatingadmissionpolicybindings", self._on_binding),
        ):
            prefix = f"/{ADMISSION_GROUP}/{plural}/"
            store.listen(prefix, changed)
            for key, entry in store.list(prefix):
                changed(StoreEvent(entry.revision, key, None, entry))

    def _on_policy(self, event: StoreEvent) -> None:
        name = event.key.rpartition("/")[2]
        self._policies.pop(name, None)
        if event.now is not None:
            try:
                self._policies[name] = AdmissionPolicy(event.now.value)
            except (ValueError, KeyError) as error:
                # Expressions are checked at creation, so this one was accepted by another version.
                log.warning("policy does not compile", policy=name, error=str(error))

    def _on_binding(self, event: StoreEvent) -> None:
        name = event.key.rpartition("/")[2]
        self._bindings.pop(name, None)
        if event.now is not None:
            self._bindings[name] = event.now.value

    def validate(
        self, call: WriteRequest, obj: Object | None, old: Object | None
    ) -> tuple[str, ...]:
        """Return warnings about a write. `obj` is None for a deletion. Raises StatusError for a
        denial.
        """
        # The server's own writes are exempt, and so are policies, so that no policy can lock them.
        own = call.user is SYSTEM or call.served.resource.group == ADMISSION_GROUP
        if not self._bindings or own:
            return ()
        attributes, warnings = self._attributes(call, obj, old), []
        for name, binding in self._bindings.items():
            spec = binding.get("spec") or {}
            policy = self._policies.get(spec.get("policyName", ""))
            if policy is None or not self._matches(policy, spec, attributes):
                continue
            for denial in self._denials(policy, spec, attributes, call):
                actions = spec.get("validationActions") or ()
                if "Deny" in actions:
                    raise _denied(call, policy.name, name, denial, attributes.name)
                if "Warn" in actions:
                    warnings.append(
                        f"Validation failed for ValidatingAdmissionPolicy '{policy.name}' with "
                        f"binding '{name}': {denial.message}"
                    )
        return tuple(warnings)

    def _matches(
        self, policy: AdmissionPolicy, binding: Object, attributes: AdmissionAttributes
    ) -> bool:
        return matches_resources(
            policy.constraints, attributes, self._serves
        ) and matches_resources(binding.get("matchResources") or {}, attributes, self._serves)

    def _serves(self, group: str, version: str, plural: str) -> bool:
        return self._registry.find(group, version, plural) is not None

    def _attributes(
        self, call: WriteRequest, obj: Object | None, old: Object | None
    ) -> AdmissionAttributes:
        resource = call.served.resource
        owner = self._store.latest(NAMESPACES_PREFIX + call.namespace) if call.namespace else None
        metadata = (obj or old or {}).get("metadata") or {}
        operation = "DELETE" if obj is None else "CREATE" if old is None else "UPDATE"
        return AdmissionAttributes(
            operation,
            resource.group,
            resource.version,
            resource.plural,
            call.subresource,
            call.namespace,
            call.name or str(metadata.get("name", "")),
            resource.namespaced,
            obj,
            old,
            owner.value if owner else None,
        )

    def _denials(
        self,
        policy: AdmissionPolicy,
        binding: Object,
        attributes: AdmissionAttributes,
        call: WriteRequest,
    ) -> Iterator[Denial]:
        data = {
            "object": attributes.object,
            "oldObject": attributes.before,
            "namespaceObject": attributes.owner,
            "request": _request(attributes, call),
            "params": None,
        }
        if policy.param_kind is None:
            yield from policy.denials(data)
            return
        parameters = self._params(policy.param_kind, binding.get("paramRef") or {}, attributes)
        if (
            not parameters
            and (binding.get("paramRef") or {}).get("parameterNotFoundAction") != "Allow"
        ):
            kind = policy.param_kind.get("kind", "")
            yield Denial(f"no params found for policy binding: there is no such {kind}")
        for params in parameters:
            yield from policy.denials({**data, "params": params})

    def _params(
        self, kind: Object, reference: Object, attributes: AdmissionAttributes
    ) -> list[Object]:
        served = self._registry.by_kind(kind.get("apiVersion", ""), kind.get("kind", ""))
        if served is None:
            return []
        namespace = reference.get("namespace") or attributes.namespace
        if reference.get("name"):
            entry = self._store.latest(served.key(namespace, reference["name"]))
            return [entry.value] if entry else []
        inside = served.resource.namespaced
        prefix = f"{served.prefix}{namespace}/" if inside else served.prefix
        selector = reference.get("selector") or {}
        return [
            entry.value
            for _, entry in self._store.list(prefix)
            if selects_labels(selector, entry.value["metadata"].get("labels") or {})
        ]


def _request(attributes: AdmissionAttributes, call: WriteRequest) -> Object:
    resource = call.served.resource
    kind = {"group": attributes.group, "version": attributes.version, "kind": resource.kind}
    named = {
        "group": attributes.group,
        "version": attributes.version,
        "resource": attributes.resource,
    }
    return {
        "kind": kind,
        "requestKind": kind,
        "resource": named,
        "requestResource": named,
        "subResource": attributes.subresource,
        "requestSubResource": attributes.subresource,
        "name": attributes.name,
        "namespace": attributes.namespace,
        "operation": attributes.operation,
        "userInfo": call.user.user_info(),
        "dryRun": call.options.dry_run,
    }


def _denied(
    call: WriteRequest, policy: str, binding: str, denial: Denial, name: str
) -> StatusError:
    resource = call.served.resource
    qualified = f"{resource.plural}.{resource.group}" if resource.group else resource.plural
    why = (
        f"ValidatingAdmissionPolicy '{policy}' with binding '{binding}' denied request: "
        f"{denial.message}"
    )
    return StatusError(
        CODES.get(denial.reason, 422),
        denial.reason,
        f'{qualified} "{name}" is forbidden: {why}',
        kind=resource.plural,
        group=resource.group,
        name=name,
        causes=[Cause("", why, "")],
    )
