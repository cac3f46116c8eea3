"""numba after a first compilation, for which it imports further modules (0.3 s)."""

import numba

numba.njit("int64(int64)")(lambda number: number)
