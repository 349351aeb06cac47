# Programs over one mapped file: `mapped.py [make] NAME FILE MIB`. Each prints a digest of all that it read.
import hashlib
import os
import random
import sys

SWEEPS = 4
LOOKUPS = 5000
COLUMNS = 4096


def numpy_matrix(path, mib, make):
    """Matrix times vector, by blocks of rows, over and over."""
    import numpy

    rows = (mib << 20) // (COLUMNS * 4)
    if make:
        draw = numpy.random.default_rng(7)
        with open(path, "wb") as file:
            for _ in range(0, rows, 256):
                file.write(draw.standard_normal((256, COLUMNS), dtype=numpy.float32).tobytes())
        return
    matrix = numpy.memmap(path, dtype=numpy.float32, mode="r", shape=(rows, COLUMNS))
    vector, digest = numpy.ones(COLUMNS, dtype=numpy.float32), hashlib.sha256()
    for _ in range(SWEEPS):
        result = numpy.concatenate([matrix[at : at + 256] @ vector for at in range(0, rows, 256)])
        digest.update(result.tobytes())
        vector = vector * numpy.float32(0.5) + result[:COLUMNS].mean()
    print(digest.hexdigest())


def sqlite(path, mib, make):
    """Scans, lookups by key and by index, with the database mapped."""
    import sqlite3

    rows = (mib << 20) // 1100
    if make:
        connection = sqlite3.connect(path)
        connection.executescript("PRAGMA journal_mode=OFF; PRAGMA synchronous=OFF")
        connection.execute("CREATE TABLE rows(id INTEGER PRIMARY KEY, key INTEGER, body BLOB)")
        draw = random.Random(5)
        values = ((number, draw.randrange(1000), draw.randbytes(1000)) for number in range(rows))
        connection.executemany("INSERT INTO rows VALUES(?, ?, ?)", values)
        connection.execute("CREATE INDEX keys ON rows(key)")
        connection.commit()
        return
    # Opened for writing nobody but the kernel may map it.
    connection = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    connection.execute(f"PRAGMA mmap_size={1 << 40}")
    draw, digest = random.Random(1), hashlib.sha256()
    for _ in range(SWEEPS):
        for (body,) in connection.execute("SELECT body FROM rows"):
            digest.update(body)
        for _ in range(LOOKUPS):
            query = connection.execute("SELECT body FROM rows WHERE id=?", (draw.randrange(rows),))
            digest.update(query.fetchone()[0])
    for (body,) in connection.execute("SELECT body FROM rows WHERE key=?", (17,)):
        digest.update(body)
    print(digest.hexdigest())


def lmdb(path, mib, make, readahead=True):
    """Lookups at random, then a walk with a cursor."""
    import lmdb

    rows, key = (mib << 20) // 1400, "{:012}".format
    if make:
        environment = lmdb.open(path, map_size=mib << 21, subdir=False, sync=False)
        draw = random.Random(3)
        with environment.begin(write=True) as transaction:
            for number in range(rows):
                transaction.put(key(number).encode(), draw.randbytes(1000), append=True)
        environment.sync(True)
        return
    environment = lmdb.open(path, readonly=True, lock=False, readahead=readahead, subdir=False)
    draw, digest = random.Random(1), hashlib.sha256()
    with environment.begin(buffers=True) as transaction:
        for _ in range(4 * LOOKUPS):
            digest.update(transaction.get(key(draw.randrange(rows)).encode()))
        if readahead:
            for _, value in transaction.cursor():
                digest.update(value)
    print(digest.hexdigest())


def main(name, path, mib, make):
    programs = {
        "numpy": numpy_matrix,
        "sqlite3": sqlite,
        "lmdb": lmdb,
        "lmdb-random": lambda path, mib, make: lmdb(path, mib, make, readahead=False),
    }
    if not make:
        return programs[name](path, mib, make)
    programs[name](path + ".new", mib, make)
    descriptor = os.open(path + ".new", os.O_RDWR)
    os.fsync(descriptor)
    os.close(descriptor)
    os.rename(path + ".new", path)


words = sys.argv[1:]
make = words[0] == "make"
name, path, mib = words[1:] if make else words
main(name, path, int(mib), make)
