"""The API groups that Gatehouse reads and serves.

:mod:`gatehouse.apis.resources` names every resource once. Each other module holds the typed, frozen
view of one group's kinds: only the fields that the compiler reads, decoded tolerantly. No I/O.
"""
