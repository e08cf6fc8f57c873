"""Text of `gatehouse status`: columns without borders.

In pipes each object is one line, and nothing is cut. On a terminal that is too narrow, a long cell
shares its line with no other cell: the other cells follow on the next line.
"""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterable, Iterator, Sequence

import msgspec
import yaml

from gatehouse.inspection.attachment_report import KUBE_APISERVER_KINDS, LISTED_ROUTE_KINDS
from gatehouse.inspection.failed_requests import failure_line
from gatehouse.inspection.status_report import ATTACHED_KINDS, ReportedObject
from kube_base.runtime.printable import printable

_GAP = "  "
_SHOWN_HOSTNAMES, _SHOWN_ENDPOINTS = 1, 8
_SHORT_CELL = 32
"""Maximum width of a cell that others in its column are aligned with, if a terminal is narrow."""


def structured_status(objects: Sequence[ReportedObject], output: str) -> str:
    """Return the report as ``json``, ``yaml`` or ``name``."""
    if output == "name":
        kinds = (f"{item.kind.lower()}{f'.{item.group}' if item.group else ''}" for item in objects)
        pairs = zip(kinds, objects, strict=True)
        return "\n".join(printable(f"{kind}/{item.name}") for kind, item in pairs)
    document = msgspec.to_builtins(objects)
    if output == "json":
        return json.dumps(document, indent=2)
    return str(yaml.dump(list(document), sort_keys=False, Dumper=yaml.CSafeDumper)).rstrip("\n")


def status_lines(
    objects: Sequence[ReportedObject], *, wide: bool, width: int = 0, selected: bool = False
) -> Iterator[str]:
    """Yield the tables. Problems of an object follow its row.

    ``width``: columns of the terminal; 0: unlimited, as in pipes. ``selected``: the objects are
    some of several, so that a missing kind means nothing.
    """
    separated = False
    for title, kinds in _SECTIONS:
        rows = [item for item in objects if item.kind in kinds]
        if title == "OTHER OBJECTS":
            rows = [item for item in objects if item.kind not in _SHOWN and item.problems]
        if rows or (title in ("GATEWAY", "ROUTE") and not selected):
            yield from ([""] if separated else [])
            separated = True
            yield from _table(title, rows, wide=wide, width=width)


_SECTIONS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("GATEWAY", ("Gateway",)),
    ("ROUTE", LISTED_ROUTE_KINDS),
    ("KUBE-APISERVER", KUBE_APISERVER_KINDS),
    ("DATA PLANE", ("Pod",)),
    ("OTHER OBJECTS", ()),
)
_SHOWN = frozenset(kind for _, kinds in _SECTIONS for kind in kinds)


def _table(title: str, objects: list[ReportedObject], *, wide: bool, width: int) -> Iterator[str]:
    header = (title, *_HEADERS[title])
    rows = [_row(title, item, wide=wide) for item in objects]
    if not rows:
        yield f"{title}: none"
        return
    widths = column_widths([header, *rows], width)
    yield from row_lines(header, widths, width)
    for item, row in zip(objects, rows, strict=True):
        yield from row_lines(row, widths, width)
        details = [f"    {_listener(listener)}" for listener in item.listeners if wide]
        details += [f"    ! {printable(_own(item, problem))}" for problem in item.problems]
        for line in details:
            yield from wrapped(line, width)


def column_widths(rows: Sequence[tuple[str, ...]], width: int) -> list[int]:
    """Return the widths of columns. ``width``: that of the terminal; 0: unlimited.

    If the terminal is too narrow, long cells do not count.
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    if not width or sum(widths) + len(_GAP) * (len(widths) - 1) <= width:
        return widths
    short = [
        max((len(cell) for cell in column if len(cell) <= _SHORT_CELL), default=0)
        for column in zip(*rows, strict=True)
    ]
    while sum(short) + len(_GAP) * (len(short) - 1) > width and max(short) > 1:
        short[short.index(max(short))] -= 1
    return short


def row_lines(cells: Sequence[str], widths: Sequence[int], width: int) -> Iterator[str]:
    """Yield the lines of a row. A cell wider than its column ends its line.

    Cells after it stay below their headers. No cell is cut, and words stay whole: a cell that does
    not fit behind the others has a line of its own.
    """
    line, start, ended = "", 0, False
    for cell, column in zip(cells, widths, strict=True):
        long = bool(width) and len(cell) > column
        own_line = long and start + len(cell) > width
        if line.strip() and (ended or own_line):
            yield line.rstrip()
            line = ""
        indent = max(min(start, width - len(cell)), 0) if own_line else start
        line, ended = f"{line.ljust(indent)}{cell}", long
        start += column + len(_GAP)
        if not long:
            line = line.ljust(start)
    yield line.rstrip()


def wrapped(line: str, width: int) -> Iterator[str]:
    """Yield a line in parts that fit a terminal. Words stay whole. ``width``: 0: unlimited."""
    if not width:
        yield line
        return
    indent = " " * (len(line) - len(line.lstrip(" !")))
    yield from textwrap.wrap(
        line,
        max(width, len(indent) + 1),
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )


_HEADERS = {
    "GATEWAY": ("CLASS", "PROGRAMMED", "LISTENERS", "ADDRESS"),
    "ROUTE": ("ACCEPTED", "RESOLVED", "GATEWAY", "HOSTNAME"),
    "KUBE-APISERVER": ("PROGRAMMED", "GATEWAY", "HOSTNAME"),
    "DATA PLANE": ("READY", "RESTARTS", "ADDRESS"),
    "OTHER OBJECTS": ("PROBLEMS",),
}


def _row(title: str, item: ReportedObject, *, wide: bool) -> tuple[str, ...]:
    state, name = item.state, item.full_name
    addresses = ", ".join(item.addresses) or "none"
    cells: tuple[str, ...]
    match title:
        case "GATEWAY":
            count = str(len(item.listeners))
            cells = (name, item.class_name, state["Programmed"], count, addresses)
        case "ROUTE":
            parents = ", ".join(item.parents) or "none"
            cells = (
                f"{item.kind} {name}",
                state["Accepted"],
                state["ResolvedRefs"],
                parents,
                _hostnames(item.hostnames, wide=wide),
            )
        case "KUBE-APISERVER":
            gateways = ", ".join(dict.fromkeys(item.gateways)) or "none"
            hostnames = _hostnames(item.hostnames, wide=wide) if item.hostnames else "none"
            cells = (f"{item.kind} {name}", state["Programmed"], gateways, hostnames)
        case "DATA PLANE":
            cells = (name, state["Ready"], state["Restarts"], addresses)
        case _:
            cells = (f"{item.kind} {name}", str(len(item.problems)))
    return tuple(printable(cell) for cell in cells)


def _hostnames(names: Sequence[str], *, wide: bool) -> str:
    if wide or len(names) <= _SHOWN_HOSTNAMES:
        return ", ".join(names) or "*"
    return f"{names[0]} +{len(names) - _SHOWN_HOSTNAMES}"


def _listener(listener: object) -> str:
    fields = msgspec.convert(listener, dict[str, str])
    hostname = f" {fields['hostname']}" if fields["hostname"] else ""
    routes = fields["routes"] or "unknown"
    return printable(
        f"listener {fields['name']} {fields['port']}/{fields['protocol']}{hostname}: "
        f"Programmed {fields['Programmed']}, routes {routes}"
    )


def _own(item: ReportedObject, problem: str) -> str:
    """Return a problem without the name of the object, which is in the row above."""
    return problem.removeprefix(f"{item.kind} {item.full_name}").removeprefix(":").strip()


def problem_lines(objects: Iterable[ReportedObject]) -> Iterator[str]:
    """Yield one line for each problem."""
    return (printable(problem) for item in objects for problem in item.problems)


def tree_lines(objects: Sequence[ReportedObject]) -> Iterator[str]:
    """Yield classes, Gateways, listeners, routes and kube-apiservers, Services and endpoints.

    The indent is the level.
    """
    gateways = [item for item in objects if item.kind == "Gateway"]
    classes = {item.name: item for item in objects if item.kind == "GatewayClass"}
    attached = [item for item in objects if item.kind in ATTACHED_KINDS]
    for name in sorted({gateway.class_name for gateway in gateways}):
        controller = classes[name].controller if name in classes else "not found"
        yield printable(f"GatewayClass {name} ({controller})")
        for gateway in gateways:
            if gateway.class_name == name:
                yield from _gateway_tree(gateway, attached)
    names = {gateway.full_name for gateway in gateways}
    orphans = [item for item in attached if not names & {*item.gateways}]
    if orphans:
        yield "no Gateway"
        yield from (line for item in orphans for line in _attached_tree(item, _GAP))


def _gateway_tree(gateway: ReportedObject, attached: Iterable[ReportedObject]) -> Iterator[str]:
    yield printable(f"  Gateway {gateway.full_name}: Programmed {gateway.state['Programmed']}")
    yield from (f"    ! {printable(_own(gateway, problem))}" for problem in gateway.problems)
    own = [item for item in attached if gateway.full_name in item.gateways]
    places = set()
    for listener in gateway.listeners:
        yield f"    {_listener(listener)}"
        name = listener["name"]
        place = name if "/" in name else f"{gateway.full_name}/{name}"
        places.add(place)
        for item in own:
            if place in item.parents:
                yield from _attached_tree(item, _GAP * 3)
    for item in own:
        pairs = zip(item.parents, item.gateways, strict=True)
        if any(owner == gateway.full_name and place not in places for place, owner in pairs):
            yield from _attached_tree(item, _GAP * 2)


def _attached_tree(item: ReportedObject, indent: str) -> Iterator[str]:
    names = f" {_hostnames(item.hostnames, wide=False)}" if item.hostnames else ""
    yield printable(f"{indent}{item.kind} {item.full_name}{names}")
    # Only data planes check servers.
    checked = "ready" if item.gateways else "not checked"
    for server in item.servers:
        state = "disabled" if server.disabled else "; ".join(server.problems) or checked
        yield printable(f"{indent}  {server.endpoint}: {state}")
    for backend in item.backends:
        yield printable(f"{indent}  Service {backend.service}: {backend.summary}")
        for failure in backend.failures:
            yield printable(f"{indent}    ! failed requests of {failure_line(failure)}")
        for endpoint in backend.addresses[:_SHOWN_ENDPOINTS]:
            state = "terminating" if endpoint.terminating else "not ready"
            state = "ready" if endpoint.ready else state
            yield printable(f"{indent}    {endpoint.address}: {state}")
        if len(backend.addresses) > _SHOWN_ENDPOINTS:
            yield f"{indent}    ... {len(backend.addresses) - _SHOWN_ENDPOINTS} more"
    services = tuple(backend.problem for backend in item.backends if backend.problem)
    for problem in item.problems:
        if not problem.endswith(services):
            yield printable(f"{indent}  ! {_own(item, problem)}")
