"""Prefect flows, each a command; until one begins, Ctrl-C ends its process without a traceback of imports."""

import signal
import sys

if sys.argv[0] == "-m" and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(signal.SIGINT, signal.SIG_DFL)
