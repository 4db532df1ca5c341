"""Prefect flows, each a command; until one begins, Ctrl-C ends its process without a traceback of imports."""

import signal
import sys

if sys.argv[0] == "-m":
    signal.signal(signal.SIGINT, signal.SIG_DFL)
