"""Last module that the server of processes imports: creation of all methods, and freezing of all objects.

Otherwise every forked process would create the methods, and its garbage collection would copy the memory
that it shares with the server, 130 MB.
"""

import gc

from methods import cases

for case in cases():
    case.method()
gc.freeze()
