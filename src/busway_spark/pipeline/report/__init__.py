"""What captured data and the journal tell:

report        the job
events        both as one table; what is in both, once
figures       counted and measured
remarks       what is remarkable, in sentences
report_page   shown
page          a report as one HTML file (`charts`: plots as SVG)
"""
