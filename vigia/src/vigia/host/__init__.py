"""The machine that commands run on: programs, processes, namespaces, signals, system calls."""
