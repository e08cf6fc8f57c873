"""Fakes, fixtures and harnesses that several test folders share. No tests are here."""
