"""Nothing but `sitecustomize`, which Python runs at its start where this folder is on its path.

Others know none of it.
"""
