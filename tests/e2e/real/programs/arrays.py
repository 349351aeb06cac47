# numpy arrays: column scans, sorting, fancy indexing, matrix products of integers; prints a digest.
import hashlib

import numpy

ROWS = 3_000_000
random = numpy.random.Generator(numpy.random.PCG64(7))
digest = hashlib.sha256()

table = random.integers(0, 1 << 40, size=(6, ROWS), dtype=numpy.int64)
for column in table:
    digest.update(int(column.sum()).to_bytes(16, "little", signed=True))
order = numpy.argsort(table[0], kind="stable")
digest.update(table[1][order][:: 1 << 10].tobytes())
table[2] = numpy.cumsum(table[3]) ^ table[2]
digest.update(numpy.sort(table[2])[:: 1 << 8].tobytes())
square = table[4][: 600 * 600].reshape(600, 600) % 1000
digest.update((square @ square).tobytes())
for column in table:
    digest.update(hashlib.sha256(column.tobytes()).digest())
print(table.shape, digest.hexdigest())
