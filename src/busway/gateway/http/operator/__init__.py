"""For whoever runs the bus:

operator_routes  stores and namespace rules in JSON; a bus made as new, for test suites
metrics_route    the figures for Prometheus
pipelines_route  streams that report themselves, and how far behind they are (`pipeline_report`: a report as JSON)
status_page      what needs no key: whether the server lives, and the page at the console's address
"""
