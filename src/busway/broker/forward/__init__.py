"""Messages that move on to another entity:

  forwarding   what arrives moves on
  transfers    where it cannot move to just now; moves between stores, and rows that may have arrived elsewhere
  send_via     messages for one entity by way of another: transfer queues

Outside of the broker one knows none of them.
"""
