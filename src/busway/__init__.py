"""Busway."""
