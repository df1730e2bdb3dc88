"""The agent's code runs in processes of its own: what it does to its process, it does not do to the tests.

Nobody of the same user may look into, or write to, the memory of the process that reports.
"""

import ctypes

PR_SET_DUMPABLE = 4
ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)
