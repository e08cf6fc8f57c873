"""API servers for tests and tools, without a cluster and without a gateway.

:mod:`local_server` runs one in a thread, with certificates of :mod:`local_certificates`.
:mod:`pytest_plugin` has it as a fixture. Only tests and tools import this package.
"""
