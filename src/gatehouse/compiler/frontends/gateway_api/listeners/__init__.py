"""Listeners: which are served, with which certificates, at which addresses."""
