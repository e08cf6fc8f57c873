"""Types of Kubernetes' built-in kinds.

:mod:`types` parses the table of types, `kinds.txt`. :mod:`constraints` has ranges and patterns that
the table does not have. :mod:`schemas` has schemas made from both.
"""
