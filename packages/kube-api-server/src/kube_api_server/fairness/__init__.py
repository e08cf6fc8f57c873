"""API Priority and Fairness: which request runs next when many wait.

https://kubernetes.io/docs/concepts/cluster-administration/flow-control

:mod:`schemas` assigns a request to a priority level and a flow, :mod:`seats` shares the seats of a
level among its flows, and :mod:`flow_control` connects them with metrics. Levels are fixed: there
are no FlowSchema and PriorityLevelConfiguration objects. Never here: HTTP.
"""
