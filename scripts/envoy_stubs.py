"""Write `typings/`: type stubs for the messages and services of Envoy, xDS and CEL.

The package xds-protos has neither stubs nor `.proto` files. Its modules contain descriptors, from
which protoc writes stubs. `make env-dev` runs this script. Stubs of all modules take a second, so a
new import needs no new run.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import re
import shutil
import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath

from google.protobuf.descriptor import (
    Descriptor,
    FileDescriptor,
    MethodDescriptor,
    ServiceDescriptor,
)
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet
from grpc_tools import protoc

ROOT = Path(__file__).parents[1]
DISTRIBUTION = "xds-protos"
EXCLUDED = "test/"
"""Directory in the distribution whose modules Python's own package of that name hides."""
NAMESPACES = ("google",)
"""Packages that several distributions share. An `__init__.pyi` would hide the other parts."""
TYPED_ELSEWHERE = "google/protobuf/"
"""Directory of messages whose stubs types-protobuf contains."""

UNCHECKED = re.compile(r"_Union\[([^][]*), (?:_Mapping|str)\]")
"""Types of arguments that protobuf also accepts as a dict or as the name of an enum's value. mypy
checks neither."""

SERVICES_HEAD = """\
from collections.abc import AsyncIterator

import grpc.aio

"""
SERVICE = """
class {name}Servicer:
{methods}

def add_{name}Servicer_to_server(servicer: {name}Servicer, server: grpc.aio.Server) -> None: ...

class {name}Stub:
    def __init__(self, channel: grpc.aio.Channel) -> None: ...
{calls}
"""


def main(arguments: list[str] | None = None) -> int:
    """Replace the directory of stubs. Return the exit status."""
    target = Path((arguments or sys.argv[1:] or [str(ROOT / "typings")])[0])
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".typings-") as name:
        directory = Path(name) / "typings"
        directory.mkdir()
        write(directory)
        shutil.rmtree(target, ignore_errors=True)
        directory.rename(target)
    return 0


def write(directory: Path) -> None:
    """Write all stubs into an empty directory. Raises RuntimeError if protoc fails."""
    modules = sorted(_modules())
    files = [_descriptor(name) for name in modules if name.endswith("_pb2")]
    write_messages(files, directory)
    for module in modules:
        if module.endswith("_pb2_grpc"):
            file = _descriptor(module.removesuffix("_grpc"))
            path = directory / f"{module.replace('.', '/')}.pyi"
            path.write_text(services(file), encoding="utf-8")
    for package in [path for path in directory.rglob("*") if path.is_dir()]:
        if str(package.relative_to(directory)) not in NAMESPACES:
            (package / "__init__.pyi").touch()


def write_messages(files: Iterable[FileDescriptor], directory: Path) -> None:
    """Write the stubs of messages. Raises RuntimeError if protoc fails."""
    ordered = list(_dependencies_first(files))
    descriptors = FileDescriptorSet(file=[_proto(file) for file in ordered])
    names = [file.name for file in ordered if not file.name.startswith(TYPED_ELSEWHERE)]
    with tempfile.NamedTemporaryFile(dir=directory) as binary:
        binary.write(descriptors.SerializeToString())
        binary.flush()
        command = ["protoc", f"--descriptor_set_in={binary.name}", f"--pyi_out={directory}"]
        status = protoc.main([*command, *names])
    if status != 0:
        raise RuntimeError(f"protoc failed with status {status}")
    for path in directory.rglob("*_pb2.pyi"):
        path.write_text(UNCHECKED.sub(r"_Union[\1]", path.read_text("utf-8")), "utf-8")


def services(file: FileDescriptor) -> str:
    """Return the stub of the asynchronous services that a file declares."""
    declared: list[ServiceDescriptor] = list(file.services_by_name.values())
    used = {kind.file.name for service in declared for kind in _message_types(service)}
    imports = "".join(f"import {_module(name)}\n" for name in sorted(used))
    return SERVICES_HEAD + imports + "".join(map(_service, declared))


def _modules() -> Iterator[str]:
    """Yield the names of the generated modules of the distribution."""
    for path in importlib.metadata.files(DISTRIBUTION) or ():
        if path.name.endswith(("_pb2.py", "_pb2_grpc.py")) and not str(path).startswith(EXCLUDED):
            yield ".".join(PurePosixPath(path).with_suffix("").parts)


def _descriptor(module: str) -> FileDescriptor:
    descriptor: FileDescriptor = importlib.import_module(module).DESCRIPTOR
    return descriptor


def _dependencies_first(files: Iterable[FileDescriptor]) -> Iterator[FileDescriptor]:
    """Yield files and their dependencies, each once and after what it imports, as protoc needs."""
    visited: set[str] = set()

    def visit(file: FileDescriptor) -> Iterator[FileDescriptor]:
        if file.name in visited:
            return
        visited.add(file.name)
        for dependency in file.dependencies:
            yield from visit(dependency)
        yield file

    for file in files:
        yield from visit(file)


def _proto(file: FileDescriptor) -> FileDescriptorProto:
    proto = FileDescriptorProto()
    file.CopyToProto(proto)
    return proto


def _service(service: ServiceDescriptor) -> str:
    methods, calls = zip(*map(_method, service.methods), strict=True)
    return SERVICE.format(name=service.name, methods="\n".join(methods), calls="\n".join(calls))


def _method(method: MethodDescriptor) -> tuple[str, str]:
    """Return the declarations of a method in the servicer and in the client."""
    request, response = _name(method.input_type), _name(method.output_type)
    types = f"[{request}, {response}]"
    kind = "Stream" if method.client_streaming else "Unary"
    kind += "Stream" if method.server_streaming else "Unary"
    call = f"    {method.name}: grpc.aio.{kind}MultiCallable{types}"
    if method.client_streaming:
        request = f"AsyncIterator[{request}]"
    define = "async def"
    if method.server_streaming:
        define, response = "def", f"AsyncIterator[{response}]"
    context = f"context: grpc.aio.ServicerContext{types}"
    arguments = f"self, request: {request}, {context}"
    return f"    {define} {method.name}({arguments}) -> {response}: ...", call


def _message_types(service: ServiceDescriptor) -> Iterator[Descriptor]:
    for method in service.methods:
        yield from (method.input_type, method.output_type)


def _name(message: Descriptor) -> str:
    """Return the name of a message's class, qualified by its module."""
    name = message.full_name.removeprefix(f"{message.file.package}.")
    return f"{_module(message.file.name)}.{name}"


def _module(file: str) -> str:
    return f"{file.removesuffix('.proto').replace('/', '.')}_pb2"


if __name__ == "__main__":
    sys.exit(main())
