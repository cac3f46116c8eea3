"""numba after what it puts off until it first compiles, which takes a third of a second."""

import numba

numba.njit("int64(int64)")(lambda number: number)
