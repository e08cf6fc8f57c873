"""Generate request_infos.json on a machine with Go: how Kubernetes parses requests.

    python tests/compiler/frontends/upstream_cluster/make_request_infos.py

The Go program in ``oracle/`` runs ``RequestInfoFactory`` of k8s.io/apiserver, at the version below.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
from itertools import product
from pathlib import Path

VERSION = "v0.36.2"
HERE = Path(__file__).parent

METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "get", "LIST")
SHAPES = (
    "/api/v1/pods",
    "/api/v1/namespaces/ns/pods",
    "/api/v1/namespaces/ns/pods/p",
    "/api/v1/namespaces/ns/pods/p/status",
    "/apis/apps/v1/deployments",
    "/apis/apps/v1/namespaces/ns/deployments/d",
    "/healthz",
)
PATHS = (
    "/", "", "/api", "/api/", "/api/v1", "/api/v1/", "/apis", "/apis/", "/apis/apps",
    "/apis/apps/v1", "/apis/apps/v1/", "/apis/apps/v1/deployments/", "/version", "/openapi/v3",
    "/openapi/v3/apis/apps/v1", "/livez/ping", "/readyz", "/metrics", "/logs/kubelet.log",
    "/debug/pprof", "/debug/pprof/", "/debug/pprof/profile", "/debug/pprofx", "/API/v1/pods",
    "/api/v1/nodes", "/api/v1/nodes/n", "/api/v1/nodes/n/proxy", "/api/v1/nodes/n/proxy/metrics",
    "/api/v1/namespaces", "/api/v1/namespaces/", "/api/v1/namespaces/ns",
    "/api/v1/namespaces/ns/", "/api/v1/namespaces/ns/status", "/api/v1/namespaces/ns/finalize",
    "/api/v1/namespaces/ns/status/more", "/api/v1/namespaces/ns/finalizer",
    "/api/v1/namespaces/namespaces/namespaces", "/api/v1/namespaces/ns/namespaces/x",
    "/api/v1/namespaces/status/pods", "/apis/apps/v1/namespaces/ns",
    "/api/v1/namespaces/ns/pods/p/log", "/api/v1/namespaces/ns/pods/p/exec",
    "/api/v1/namespaces/ns/pods/p/attach", "/api/v1/namespaces/ns/pods/p/portforward",
    "/api/v1/namespaces/ns/pods/p/proxy/a/b", "/api/v1/namespaces/ns/pods/p/logs",
    "/api/v1/namespaces/ns/pods/p/exec/more/parts", "/api/v1/namespaces/ns/pods/p/",
    "/api/v1/namespaces/ns/services/https:s:443/proxy/", "/api/v1/namespaces/ns/secrets/s",
    "/api/v1/namespaces/ns/serviceaccounts/default/token",
    "/apis/apps/v1/namespaces/ns/deployments/d/scale",
    "/apis/custom.metrics.k8s.io/v1beta1/namespaces/ns/pods/*/cpu",
    "/apis/proxy.kubegateway.io/v1alpha1/upstreamclusters/a.example",
    "/api/v1/watch", "/api/v1/watch/", "/api/v1/watch/pods", "/api/v1/watch/namespaces/ns/pods",
    "/api/v1/watch/namespaces/ns/pods/p", "/api/v1/watch/namespaces/ns/pods/p/log",
    "/apis/apps/v1/watch", "/apis/apps/v1/watch/deployments", "/api/v1/proxy",
    "/api/v1/proxy/nodes/n", "/api/v1/proxy/namespaces/ns/services/s/a/b", "/api/v1/watchers",
    "/api/v1/watch/watch", "/api/v1/pods/watch", "/api/v1/pods/x/watch",
    "//api/v1/pods", "/api//v1/pods", "/api/v1//pods", "/api/v1/pods//log", "/api/v1/pods//",
    "/api/v1/namespaces//pods", "/api/v1/namespaces/ns//x", "///", "/api/v1/./pods",
    "/api/v1/../pods", "/api/v1/namespaces/../secrets", "/api/v1/namespaces/ns/pods/..",
    "/%61pi/v1/pods", "/api%2Fv1%2Fpods", "/api/v1/namespaces/ns%2Fpods",
    "/api/v1/namespaces/n%20s/pods", "/api/v1/pods/%70", "/api/v1/pods/a%2Fb",
    "/api/v1/pods/a%252Fb", "/api/v1/pods/%C3%A4", "/api/v1/pods/ä", "/api/v1/pods%3Fwatch=1",
    "/api/v1/p+ods", "/api/v1/pods/%2e%2e", "/api/v1/pods/%zz", "/api/v1/pods/%", "/%00",
    "/api/v1/pods/%0a", "/api/v1/pods;x=y", "/api/v1/pods/a;b", "/api/v1/pods#top",
    "/healthz%2Fping", "/healthz/", "/healthz?verbose", "/apis/a/b/c/d/e/f/g", "/api/v1/a/b/c/d/e",
)  # fmt: skip
QUERIES = (
    "watch", "watch=", "watch=true", "watch=false", "watch=FALSE", "watch=False", "watch=0",
    "watch=00", "watch=1", "watch=no", "watch=true&watch=false", "watch=false&watch=true",
    "watch=%66alse", "watch=fal%C5%BFe", "w%61tch=1", "Watch=1", "watch=1;x=2", "x=1;y&watch=1",
    "watch=%zz", "watch=%", "&&watch=1", "watch+=1", "+watch=1", "watch=+false", "watch=f%20",
    "limit=5", "limit=x", "limit=", "limit=%2B5", "limit=-1", "limit=9223372036854775807",
    "limit=9223372036854775808", "limit=0005", "limit=1_0", "timeoutSeconds=x&watch=1",
    "timeoutSeconds=5&watch=true", "allowWatchBookmarks=x&watch=1", "resourceVersion=x",
    "fieldSelector=metadata.name%3Dx", "fieldSelector=metadata.name=x",
    "fieldSelector=metadata.name%3D%3Dx", "fieldSelector=metadata.name==x",
    "fieldSelector=metadata.name!=x", "fieldSelector=metadata.name%3Dx&watch=1",
    "fieldSelector=metadata.name%3Dx&watch=0", "fieldSelector=metadata.name%3Dx&limit=x",
    "fieldSelector=metadata.name%3Dx&limit=1&watch=1", "fieldSelector=metadata.name%3D",
    "fieldSelector=metadata.name", "fieldSelector=", "fieldSelector",
    "fieldSelector=metadata.name%3Da%2Fb", "fieldSelector=metadata.name%3D..",
    "fieldSelector=metadata.name%3D.", "fieldSelector=metadata.name%3Da%25b",
    "fieldSelector=spec.nodeName%3Dn,metadata.name%3Dx",
    "fieldSelector=metadata.name%3Dx,spec.nodeName%3Dn",
    "fieldSelector=metadata.name%3Dz,metadata.name%3Da",
    "fieldSelector=metadata.name!%3Da,metadata.name%3Db",
    "fieldSelector=spec.nodeName%3Dn", "fieldSelector=spec.nodeName%3Dn,nonsense",
    "fieldSelector=metadata.name%3Dx,nonsense", "fieldSelector=,metadata.name%3Dx,",
    "fieldSelector=metadata.name%3Dx%5C,y", "fieldSelector=metadata.name%3Dx%5C%3Dy",
    "fieldSelector=metadata.name%3Dx%5C%5Cy", "fieldSelector=metadata.name%3Dx%5Cy",
    "fieldSelector=metadata.name%3Dx%5C", "fieldSelector=metadata.name%3Dx%3Dy",
    "fieldSelector=+metadata.name%3Dx", "fieldSelector=metadata.name+%3Dx",
    "fieldSelector=metadata.name%3D+x", "fieldSelector=metadata%5C.name%3Dx",
    "fieldSelector=%3D", "fieldSelector=a%3Db&fieldSelector=metadata.name%3Dx",
    "fieldSelector=metadata.name%3D%C3%A4", "fieldSelector=Metadata.name%3Dx",
    "fieldSelector=metadata.name%3Dx%0Ay", "labelSelector=a%3Db&watch=1",
    "labelSelector=a%3Db&fieldSelector=metadata.name%3Dx", "pretty=true", "limit=500&continue=x",
)  # fmt: skip


def requests() -> list[tuple[str, str]]:
    """Yield every request of the table: methods by shapes, then each path, then each query."""
    result = list(product(METHODS, SHAPES))
    result += [("GET", path) for path in PATHS]
    result += [("DELETE", path) for path in PATHS[::5]]
    result += [("GET", f"/api/v1/pods?{query}") for query in QUERIES]
    result += [
        ("GET", "/api/v1/namespaces/ns/pods/p?watch=true"),
        ("GET", "/api/v1/namespaces/ns/pods/p?fieldSelector=metadata.name%3Dx"),
        ("DELETE", "/api/v1/pods?fieldSelector=metadata.name%3Dx"),
        ("POST", "/api/v1/pods?watch=1"),
        ("GET", "/api/v1/watch/pods?watch=0"),
        ("HEAD", "/api/v1/pods?watch=1"),
        ("GET", "/healthz?watch=1"),
        ("POST", "/api/v1/namespaces/ns/pods/p/exec?command=ls&stdin=true"),
    ]
    return list(dict.fromkeys((method, target) for method, target in result if target))


def main() -> None:
    with tempfile.TemporaryDirectory() as scratch:
        shutil.copy(HERE / "oracle" / "main.go", scratch)
        for command in (
            "go mod init oracle",
            f"go get k8s.io/apiserver@{VERSION}",
            "go mod tidy",
            "go build -o oracle",
        ):
            subprocess.run(command.split(), cwd=scratch, check=True, capture_output=True)
        text = json.dumps(requests())
        done = subprocess.run(
            [f"{scratch}/oracle"], input=text, capture_output=True, text=True, check=True
        )
    lines = ",\n".join(json.dumps(load, ensure_ascii=False) for load in json.loads(done.stdout))
    header = {"made_by": "make_request_infos.py", "of": f"k8s.io/apiserver {VERSION}"}
    head = json.dumps(header)[:-1]
    path = HERE / "request_infos.json"
    path.write_text(f'{head}, "requests": [\n{lines}\n]}}\n', encoding="utf-8")


if __name__ == "__main__":
    main()
