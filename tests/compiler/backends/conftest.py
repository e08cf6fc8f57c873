"""Servers beside the proxies of these tests."""

from fakes.authorized_traffic import auth

__all__ = ["auth"]
