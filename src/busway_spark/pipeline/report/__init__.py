"""What captured data and the journal tell:

report        the job, and what is remarkable, in sentences
events        both as one table; what is in both, once
figures       counted and measured
report_page   shown
page          a report as one HTML file, with plots as SVG

Others know `page` and `report`.
"""
