#!/usr/bin/env bash
# install_lock.sh PYTHON LOCK: install the packages of a lock file and, editable, those of this
# repository.
# The lock is complete, so that nothing is resolved: a pip that resolves extras may prefer a newer
# version to the locked one, and then miss its hash.
set -euo pipefail
python=$1 lock=$2
total=$(grep -c '^[A-Za-z0-9]' "$lock")
pip=("$python" -m pip --disable-pip-version-check)

progress() {
  awk -v total="$total" -v terminal="$([ -t 1 ] && echo 1 || echo 0)" '
    /^(Collecting|Requirement already satisfied)/ {
      count++
      if (terminal) printf "\r\033[K  %d of %d packages: %s", count, total, $2
      else if (count % 25 == 0 || count == total) printf "  %d of %d packages\n", count, total
      fflush()
    }
    /^Installing collected/ { printf "%s  unpacking (about a minute)\n", terminal ? "\r\033[K" : ""; fflush() }'
}

echo "Installing $total packages of $lock"
for number in 1 2 3; do
  if "${pip[@]}" install --progress-bar off --no-deps --require-hashes -r "$lock" | progress; then
    break
  fi
  [ "$number" != 3 ] || exit 1
  echo "Try $number failed, trying again" >&2
  sleep $((number * 5))
done
"${pip[@]}" install -q --no-build-isolation --no-deps -e packages/kube-base -e packages/kube-api-server -e .
"${pip[@]}" check
