"""What the outside learns of a running server: figures and log lines.

metric_names     every figure: the service's name for it, ours, and what it means
exposition       the figures of a namespace as Prometheus reads them
exposition_text  the text that it reads, line by line
hub_figures      those of its event hubs
pipelines        streams that read the bus, by their reports
pipeline_lag     how far each is behind, at the moment of asking (`pipeline_figures`: for a scrape)
measured_process what else of a server is measured, and what its process uses of the machine
stall_meter      how long the event loop lets everybody wait, and because of what
log_lines        the lines of the log: as text or as JSON, without secrets
"""
