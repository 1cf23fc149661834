"""Busway: a message bus you run yourself, wire-compatible with Azure Service Bus."""

from busway import compiled

__version__ = "0.1.0"

compiled.install()
