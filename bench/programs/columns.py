# Column scans with numpy: sums, extremes, filters over two columns, a grouped sum; prints a digest of all results.
import hashlib

import numpy

ROWS = 4_000_000
COLUMNS = 8
ROUNDS = 4

random = numpy.random.Generator(numpy.random.PCG64(11))
columns = [random.integers(0, 1 << 40, size=ROWS, dtype=numpy.int64) for _ in range(COLUMNS)]
digest = hashlib.sha256()
for round in range(ROUNDS):
    for index, column in enumerate(columns):
        other = columns[(index + round + 1) % COLUMNS]
        selected = (column & 1023 < 512) & (other & 1023 < 256)
        figures = [column.sum(), column.min(), column.max(), numpy.count_nonzero(selected), (column ^ other).sum()]
        digest.update(repr([int(figure) for figure in figures]).encode())
print(digest.hexdigest())
