"""Back ends: how one kind of proxy says what the IR means. Pure functions, IR in, bundle out.

One package per proxy. They know nothing of Kubernetes, and what a proxy cannot do they report.
"""
