"""The client side of Kubernetes: talks to any API server, ours or a real one.

Here: how to reach one (:mod:`~gatehouse.kube.config`, :mod:`~gatehouse.kube.credentials`), the
verbs (:mod:`~gatehouse.kube.client`), mirrors of collections (:mod:`~gatehouse.kube.informer`; the
pure half is :mod:`~gatehouse.kube.store`), leader election, Events and create-or-update.

Never here: what any object means. Objects are plain dicts, as the server sent them; only the
metadata that every kind shares is looked at. A new verb goes into ``client``; a new way to prove
who we are into ``credentials``; anything that knows a kind beyond Lease, Event and the token kinds
belongs to the package that uses it.
"""
