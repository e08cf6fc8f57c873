"""Storage of objects: one interface, two engines.

- :mod:`store`: current state and recent history in memory, for readers and watches;
  :mod:`entries`: entries, events and watches;
- :mod:`sqlite` (one process, one file) and :mod:`etcd` (several servers): the engines;
  :mod:`factory`: opens a store by its address;
- :mod:`encryption`: encryption at rest; :mod:`backup`: backup and restore.

Never here: the meaning of keys and objects.
"""
