"""Agent that runs an NGINX.

- ``main``: start-up and shutdown order.
- ``mpi_session``, ``mpi_client``, ``instance_info``, ``file_overview``: the MPI connection to the
  control plane, the agent's description of itself, and requested file sets.
- ``coalescing_queue``: pending requests, of which the newest wins. No I/O.
- ``apply``, ``file_fetcher``, ``confirmation``, ``apply_steps``: from a request to a reload or a
  rollback.
- ``staging``: creation of a configuration revision and its test by NGINX.
- ``upstreams``: endpoint updates in a running NGINX. NGINX queries them over DNS
  (``dns_upstreams``, ``nameserver``, ``dns_messages``, ``seed_files``); NGINX Plus gets them by its
  API (``plus``).
- ``revision_store``, ``manifests``, ``main_conf``, ``paths``: files on disk.
- ``binary``, ``master``, ``supervisor``: the NGINX executable and its processes.
- ``metrics``: metrics of the agent and NGINX.

Never here: a parser of NGINX's configuration language (``nginx -t`` decides). A new request type of
the protocol is a case in ``mpi_session``; a new file on disk a method of ``revision_store``.
"""
