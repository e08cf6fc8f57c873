"""Listeners: validity, conflicts, certificates, addresses. :mod:`listeners` joins the others."""
