"""Copies of a bus that nobody serves."""
