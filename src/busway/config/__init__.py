"""The emulator's Config.json and our superset of it:

config       the file, read
node         one place in such a file, which knows how it is called in errors
wishes       an entity that it wants, and an event hub
rules        rules in it, and values with a type
definition   all that defines a namespace, its export, and what a file changes in it

Others know all of it.
"""
