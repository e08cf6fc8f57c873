"""Record what Kubernetes says about the objects of `tests/apiserver/validation_cases/`.

Run by `make validation-cases` on a machine with a kube-apiserver and etcd (see `fakes/peers.py`),
after a change of the bundled CRDs or of the cases. Only the results are written: `valid`,
`stored`, `causes`, `code` and `message`.
"""

from __future__ import annotations

import json
import ssl
import sys
import tempfile
import time
from http.client import HTTPSConnection
from pathlib import Path

from fakes.kube_apiserver import KubeApiserver, running_kube_apiserver
from fakes.validation_cases import FILES, REGISTRY, Object, case_object, read_cases
from gatehouse.apiserver_extension.extension import bundled

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
RESULTS = ("valid", "stored", "causes", "code", "message")


class Kubernetes:
    """A running kube-apiserver with the bundled CRDs."""

    def __init__(self, server: KubeApiserver) -> None:
        trust = ssl.create_default_context(cafile=str(server.authority))
        trust.load_cert_chain(*map(str, server.administrator))
        self._connection = HTTPSConnection("127.0.0.1", server.port, context=trust)
        for definition in bundled():
            if definition["spec"]["group"].startswith("gateway.networking."):
                code, answer = self.request("POST", DEFINITIONS, definition)
                if code != 201:
                    sys.exit(f"{definition['metadata']['name']}: {answer['message']}")

    def request(self, method: str, path: str, body: Object | None = None) -> tuple[int, Object]:
        """Send a request, and return code and body of the response."""
        data = None if body is None else json.dumps(body)
        self._connection.request(method, path, data, {"Content-Type": "application/json"})
        answer = self._connection.getresponse()
        text = answer.read()
        return answer.status, json.loads(text) if text.startswith(b"{") else {"message": ""}

    def until_served(self, collection: str) -> None:
        """Wait until objects of a kind can be written."""
        while self.request("GET", collection)[0] != 200:
            time.sleep(0.1)


def result(kubernetes: Kubernetes, collection: str, obj: Object, case: Object) -> Object:
    """Return the result of a case, in the form of the files."""
    dry_run = "dryRun=All&fieldValidation=Strict"
    if "old" in case:
        code, old = kubernetes.request("POST", collection, {**obj, "spec": case["old"]})
        assert code == 201, old
        obj["metadata"]["resourceVersion"] = old["metadata"]["resourceVersion"]
        code, answer = kubernetes.request("PUT", f"{collection}/sample?{dry_run}", obj)
        kubernetes.request("DELETE", f"{collection}/sample")
    else:
        code, answer = kubernetes.request("POST", f"{collection}?{dry_run}", obj)
    if code < 300:
        return {"valid": True, **({"stored": answer["spec"]} if "stored" in case else {})}
    if code != 422:
        return {"code": code, "message": answer["message"]}
    causes = answer["details"]["causes"]
    return {"causes": sorted([c["reason"], c["field"], c["message"]] for c in causes)}


def record(kubernetes: Kubernetes, path: Path) -> None:
    """Write the results of one file."""
    text, document = path.read_text(), read_cases(path)
    served = REGISTRY.by_kind(document["apiVersion"], document["kind"])
    assert served is not None
    resource = served.resource
    namespace = "/namespaces/default" if resource.namespaced else ""
    collection = f"/apis/{document['apiVersion']}{namespace}/{resource.plural}"
    kubernetes.until_served(collection)
    head = {"apiVersion": document["apiVersion"], "kind": document["kind"]}
    lines = []
    for case in document["cases"]:
        obj = {**head, "metadata": {"name": "sample"}, **case_object(case, document["bases"])}
        request = {key: value for key, value in case.items() if key not in RESULTS}
        lines.append(json.dumps({**request, **result(kubernetes, collection, obj, case)}))
    start, _, _ = text.partition("\ncases:\n")
    path.write_text(start + "\ncases:\n" + "".join(f"- {line}\n" for line in lines))


def main() -> None:
    """Record all files."""
    with tempfile.TemporaryDirectory() as directory, running_kube_apiserver(
        Path(directory)
    ) as server:  # fmt: skip
        kubernetes = Kubernetes(server)
        for path in FILES:
            record(kubernetes, path)
            print(path.name, flush=True)


if __name__ == "__main__":
    main()
