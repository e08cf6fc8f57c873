"""Where objects are kept: one interface, two engines.

:mod:`store` holds the newest state and the recent past in memory and serves readers and watches;
:mod:`sqlite` (one process, one file) and :mod:`etcd` (several servers) are the engines under it.
:mod:`encryption` seals what must not lie readable on a disk.
"""
