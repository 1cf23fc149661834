"""Many messages at once, for jobs:

  claims         taken, held and settled together
  backfill       history for a subscription: copies that no publish made, each once
  letter_moves   dead letters back to work, each once

Outside of the broker one knows `claims`, `backfill` and `letter_moves`.
"""
