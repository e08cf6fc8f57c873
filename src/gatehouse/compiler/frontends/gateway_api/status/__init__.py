"""Desired statuses, and their merge with current ones."""
