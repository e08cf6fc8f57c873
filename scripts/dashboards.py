"""Write the Grafana dashboards of the chart from `dashboards.yaml` beside this file."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

SOURCE = Path(__file__).with_suffix(".yaml")
DIRECTORY = Path(__file__).parents[1] / "charts" / "gatehouse" / "monitoring" / "dashboards"

_DATA_SOURCE = {"type": "prometheus", "uid": "${datasource}"}
_COLUMNS, _WIDTH, _HEIGHT = 24, 8, 8
"""Grafana's grid: its columns, and the size of a panel."""

_SCHEMA_VERSION = 39
"""Version of the JSON model: Grafana 10.4 and newer read it."""


class Query(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One line of a graph."""

    query: str
    """PromQL."""
    legend: str


class Panel(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One graph, or one table of current values."""

    title: str
    unit: str
    queries: tuple[Query, ...]
    table: bool = False


class Dashboard(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One dashboard."""

    name: str
    title: str
    variables: dict[str, str]
    panels: tuple[Panel, ...]


def dashboards() -> list[Dashboard]:
    """Return the definitions."""
    return msgspec.yaml.decode(SOURCE.read_bytes(), type=list[Dashboard])


def _targets(panel: Panel) -> Iterator[dict[str, Any]]:
    form = {"instant": True, "format": "table"} if panel.table else {"range": True}
    for index, query in enumerate(panel.queries):
        yield {
            "refId": chr(ord("A") + index),
            "datasource": _DATA_SOURCE,
            "expr": query.query,
            "legendFormat": query.legend,
            **form,
        }


def _panels(dashboard: Dashboard) -> Iterator[dict[str, Any]]:
    for number, panel in enumerate(dashboard.panels):
        row, column = divmod(number, _COLUMNS // _WIDTH)
        graph = {"tooltip": {"mode": "multi", "sort": "desc"}}
        without_time = {"id": "organize", "options": {"excludeByName": {"Time": True}}}
        yield {
            "id": number + 1,
            "title": panel.title,
            "type": "table" if panel.table else "timeseries",
            "gridPos": {"h": _HEIGHT, "w": _WIDTH, "x": column * _WIDTH, "y": row * _HEIGHT},
            "datasource": _DATA_SOURCE,
            "targets": list(_targets(panel)),
            "fieldConfig": {"defaults": {"unit": panel.unit}, "overrides": []},
            "options": {} if panel.table else graph,
            "transformations": [{"id": "merge", "options": {}}, without_time]
            if panel.table
            else [],
        }


def _variables(dashboard: Dashboard) -> Iterator[dict[str, Any]]:
    yield {"name": "datasource", "type": "datasource", "query": "prometheus", "label": "Source"}
    for label, metric in dashboard.variables.items():
        yield {
            "name": label,
            "label": label.capitalize(),
            "type": "query",
            "datasource": _DATA_SOURCE,
            "query": {"query": f"label_values({metric}, {label})", "refId": label},
            "includeAll": True,
            "multi": True,
            "allValue": ".*",
            "refresh": 2,
            "sort": 1,
            "current": {"text": "All", "value": "$__all"},
        }


def document(dashboard: Dashboard) -> str:
    """Return the dashboard in Grafana's JSON model."""
    content = {
        "uid": f"gatehouse-{dashboard.name}",
        "title": dashboard.title,
        "tags": ["gatehouse"],
        "schemaVersion": _SCHEMA_VERSION,
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {"list": list(_variables(dashboard))},
        "panels": list(_panels(dashboard)),
    }
    return json.dumps(content, indent=1) + "\n"


def main() -> None:
    """Write the files."""
    for dashboard in dashboards():
        path = DIRECTORY / f"{dashboard.name}.json"
        path.write_text(document(dashboard), encoding="utf-8")


if __name__ == "__main__":
    main()
