"""Messages that move on to another entity:

  forwarding            what arrives moves on
  destinations_on_hold  where it cannot move to just now; what is for others passes by
  transfers             moves between stores, and rows that may have arrived elsewhere (`doubt`: what is written down
                        of these)
  send_via              messages for one entity by way of another: transfer queues

Outside of the broker one knows none of them.
"""
