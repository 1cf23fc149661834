"""The console: a page in the browser, served on the same port as everything else. It is a client like any other, of
the documented routes; what is here is what it needs besides.

page_files       the files of the page: read once, compressed, under a version of their content; the page's policy
overview         every entity in one row, looked at once a second for all who watch, told as what has changed
live             the WebSocket by which a page watches: authorised by its first words, and bounded
sign_in_codes    a token handed from the command line to a browser, once
console_routes   the page, its files, and the same figures for whoever asks instead of watching

page             what runs in the browser: modules without a build step (`page/README.md` says how they are written)
vendor           what they are made with, as published: preact, htm, uPlot, with licences; `checksums.txt` says which

Others know `console_routes` and `live`.
"""
