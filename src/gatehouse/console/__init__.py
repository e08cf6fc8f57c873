"""Read-only web console: a local HTTP server that reads with the credentials of its user.

- :mod:`~gatehouse.console.server`: the server and its routes.
- :mod:`~gatehouse.console.access`: who may send requests: login, Host header, response headers.
- :mod:`~gatehouse.console.api`: the JSON API below ``/console/api/v1``.
- :mod:`~gatehouse.console.object_feed`: objects by watch, while a page is open.
- :mod:`~gatehouse.console.topology`: reported objects by revision.
- :mod:`~gatehouse.console.data_plane_feed`: metrics of data planes.
- :mod:`~gatehouse.console.documents`: documents of this version as pages.
- ``static``: the front end: HTML, CSS and ES modules as the browser gets them, without a build.

Reports come from :mod:`gatehouse.inspection`, so that the console shows what commands print. Never
here: writes to the API server, and the content of Secrets in a response.
"""
