"""The jobs of `busway pipeline`. Each has a file with a frozen dataclass of options and a function that runs it.

job                what all jobs share: the bus, the session, how progress is told
captured           files of captured messages: their columns, their names, their folders
"""
