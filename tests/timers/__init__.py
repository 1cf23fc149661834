"""Every timer: who starts it, who stops it, what its end does; and connections that outlive all of them.

scan              finds the timers of the sources
timer             what a row of the table says
timers            the table: broker_timers, server_timers, cluster_timers, client_timers
__main__          writes docs/timers.md from it
hasty_server      a server in this process whose time a test lets pass
websocket_wire    our client over WebSocket
"""
