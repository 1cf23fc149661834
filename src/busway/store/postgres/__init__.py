"""Stores in a PostgreSQL database.

url            where a database is, how many stores it holds, how they are called
sqlstates      what an error of PostgreSQL means for a batch
server_checks  whether a server can keep what it promises; what a session is told at its beginning
"""
