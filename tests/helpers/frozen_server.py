"""Last module that the server of processes imports: what every forked process would otherwise do itself.

A garbage collection in a forked process copies the memory of all objects that it shares with the server,
130 MB, unless they are frozen here.
"""

import gc

from methods import cases

for case in cases():
    case.method()
gc.freeze()
