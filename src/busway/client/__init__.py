"""A small client for Busway on our own AMQP engine: the command line uses it, programs and tests may.

  service_bus_client  one connection with senders, receivers and management requests (asyncio)
  administration      queues, keys and stores over HTTP (blocking)

Names follow the official Python client where it has them.
"""
