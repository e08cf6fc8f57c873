#!/bin/sh
# install.sh DIRECTORY EXTRA: Gatehouse as an image has it, at the place where it will be run.
# EXTRA: one of pyproject.toml that has a lock file, such as controller or agent-nginx.
set -eu
directory=$1 extra=$2
lock="requirements/$extra.lock"
[ -f "$lock" ] || { echo "no extra $extra" >&2; exit 2; }
pip_options="--disable-pip-version-check -q"
if [ ! -d dist ]; then
  build=$(mktemp -d)
  python3 -m venv "$build"
  # shellcheck disable=SC2086
  "$build/bin/pip" install $pip_options --no-deps --require-hashes -r requirements/build.lock
  # shellcheck disable=SC2086
  "$build/bin/pip" wheel $pip_options --no-build-isolation --no-deps -w dist ./packages/kube-base .
  rm -rf "$build"
fi
python3 -m venv "$directory"
# shellcheck disable=SC2086
"$directory/bin/pip" install $pip_options --no-deps --require-hashes -r "$lock"
# shellcheck disable=SC2086
"$directory/bin/pip" install $pip_options --no-deps dist/gatehouse-*.whl dist/gatehouse_kube_base-*.whl
"$directory/bin/pip" check --disable-pip-version-check
"$directory/bin/python" - <<'PYTHON'
import pathlib, sysconfig, shutil
packages = pathlib.Path(sysconfig.get_path("purelib"))
for name in ("pip", "setuptools", "pkg_resources", "_distutils_hack"):
    for path in (packages / name, *packages.glob(f"{name}-*.dist-info")):
        shutil.rmtree(path, ignore_errors=True)
(packages / "distutils-precedence.pth").unlink(missing_ok=True)
for tests in packages.rglob("tests"):
    if tests.is_dir() and not {"gatehouse", "kube_base"} & set(tests.parts):
        shutil.rmtree(tests, ignore_errors=True)
PYTHON
# Some packages install sources and manuals, which no program needs.
find "$directory" -mindepth 1 -maxdepth 1 ! -name bin ! -name lib ! -name lib64 ! -name pyvenv.cfg -exec rm -rf {} +
find "$directory/lib" -mindepth 1 -maxdepth 1 ! -name 'python3*' -exec rm -rf {} +
rm -f "$directory"/bin/pip* "$directory"/bin/activate* "$directory"/bin/Activate.ps1
"$directory/bin/python" -m compileall -q -j 0 "$directory/lib" || true
"$directory/bin/gatehouse" --version
