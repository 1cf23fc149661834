"""What a client does together or not at all:

  transactions   one of them, and those of a connection
  gathered       what one will send, and settle or cancel, in the fragment that it keeps to
  rules          rules it changes

Outside of the broker one knows `transactions`.
"""
