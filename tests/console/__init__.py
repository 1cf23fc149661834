"""The console as people use it: a real server, a real browser, every action by mouse and keyboard.

conftest    the browser, a server with a shop's entities in it, a page that is signed in
shop        those entities and messages
pictures    screenshots that a run keeps, in build/console
"""
