"""The emulator's Config.json and our superset of it:

config       the file, read
node         one place in such a file, which knows how it is called in errors
wish         an entity that it wants
hubs rules   hubs in it; rules in it
values       properties and their values
changes      what a file changes in a namespace
definition   all that defines a namespace, and its export
"""
