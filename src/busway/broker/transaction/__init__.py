"""What a client does together or not at all:

  transaction     one of them
  transactions    those of a connection
  sends claims    what one will send, and settle or cancel
  place           which fragment it keeps to
  rules           rules it changes

Outside of the broker one knows `transactions`.
"""
