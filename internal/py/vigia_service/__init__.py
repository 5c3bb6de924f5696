"""What Vigia's Python services have in common: command line, logs, reload, metrics of their own, web server.

Importing this package loads nothing else; each module is imported where it is
used, so that a command line starts fast. internal/py/README.md says how to
build a service with it.
"""
