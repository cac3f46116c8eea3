"""numba with the imports that it delays until its first compilation, a third of a second."""

import numba

numba.njit("int64(int64)")(lambda number: number)
