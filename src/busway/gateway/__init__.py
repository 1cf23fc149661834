"""Where clients come in: bytes and wire names outside, the broker's words inside.

listener      one port for every protocol: the first bytes decide; there are only so many newcomers
served_protocols    who gets a connection that has said what it speaks; hardly anybody while the bus is not served
certificates  those of a data directory: whether they are good, and TLS with them
authority     makes them, at first start and near their end; `tls_files`: where they lie
amqp          AMQP 1.0, straight or over WebSocket
http          management and messages over HTTP, and WebSockets
connection_budget   how much memory all connections may make the server hold, and who gives way
tracking      the tail of every error text

Others know `certificates`, `connection_budget`, `served_protocols`, `listener` and `tls_files`.
"""
