"""State of an installation as its user may read it: objects, conditions, traffic, explanations.

Commands and the console show these reports, with the same JSON. Functions get the client of the
user, so that they read what the user may read. Nothing here writes, and nothing parses options or
renders text.

- :mod:`~gatehouse.inspection.object_set`: the objects that reports are made of.
- :mod:`~gatehouse.inspection.status_report`: Gateways, routes and data planes with their problems.
- :mod:`~gatehouse.inspection.request_explanation`: the expected answer to a request.
- :mod:`~gatehouse.inspection.traffic_report`: requests of routes and backends.
"""
