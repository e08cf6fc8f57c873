#!/bin/sh
# lock.sh [OPTION OF uv pip compile ...]: write requirements/*.lock, without the packages of this repository.
# The lock of standalone is resolved first. The others have its versions.
set -eu
compile() {
  "${UV:-uv}" pip compile -q --generate-hashes --no-emit-index-url --no-header --no-annotate --python-version 3.11 \
    --no-emit-package gatehouse-kube-api-server --no-emit-package gatehouse-kube-base "$@"
}
cd "$(dirname "$0")/.."
compile "$@" --group dev --extra standalone pyproject.toml -o requirements/dev.lock
compile --group build --extra standalone -c requirements/dev.lock pyproject.toml -o requirements/run.lock
compile --group build -c requirements/dev.lock -o requirements/build.lock
for extra in agent-envoy agent-nginx controller node-proxy node-proxy-envoy; do
  compile --extra "$extra" -c requirements/dev.lock pyproject.toml -o "requirements/$extra.lock"
done
