"""What the outside learns of a running server: figures. (The lines of its log are `busway.log_lines`.)

metrics           every figure: the service's name for it, ours, what it means; the text that Prometheus reads
exposition        the figures of a namespace and of its event hubs, copied and written
lease_figures     what a server owns of stores that it shares with others, also while it serves nothing
rates             what has flowed in the last hour, for plots, in memory that is bounded
pipelines         streams that read the bus, by their reports, and how far each is behind at the moment of asking
measured_process  what else of a server is measured: its process, and how long the event loop lets everybody wait

Others know all of it.
"""
