# Files that are larger than RAM, through mmap and through sqlite3's mmap_size; prints digests of all
# that was read. `mapped.py make DIR` makes them, `mapped.py read DIR` reads.
import hashlib
import mmap
import os
import random
import sqlite3
import sys

PAGE = 4096
PAGES = 128 * 256
ROWS = 90_000


def make(data, database):
    with open(data, "wb") as file:
        for block in range(PAGES // 256):
            file.write(random.Random(block).randbytes(256 * PAGE))
        os.fsync(file.fileno())
    connection = sqlite3.connect(database)
    connection.execute("PRAGMA journal_mode=OFF")
    connection.execute("PRAGMA synchronous=OFF")
    connection.execute("CREATE TABLE rows(id INTEGER PRIMARY KEY, key INTEGER, body BLOB)")
    draw = random.Random(5)
    rows = ((number, draw.randrange(1000), draw.randbytes(1000)) for number in range(ROWS))
    connection.executemany("INSERT INTO rows VALUES(?, ?, ?)", rows)
    connection.execute("CREATE INDEX keys ON rows(key)")
    connection.commit()
    connection.close()


def arrays(path):
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        shared = mmap.mmap(file.fileno(), 0, flags=mmap.MAP_SHARED, prot=mmap.PROT_READ)
        private = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
    for _ in range(2):
        digest.update(shared)
    for page in reversed(range(PAGES)):
        digest.update(shared[page * PAGE : page * PAGE + 16])
    draw = random.Random(9)
    for _ in range(2000):
        at = draw.randrange(PAGES * PAGE - 64)
        digest.update(shared[at : at + 64])
    for page in range(0, PAGES, 7):
        private[page * PAGE + 5] = page % 251
    digest.update(private)
    # Stores to one mapping are nobody else's.
    digest.update(shared)
    return digest.hexdigest()


def rows(path):
    connection = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    connection.execute(f"PRAGMA mmap_size={1 << 31}")
    digest = hashlib.sha256()
    for _ in range(2):
        for (body,) in connection.execute("SELECT body FROM rows"):
            digest.update(body)
    draw = random.Random(1)
    for _ in range(2000):
        query = connection.execute("SELECT body FROM rows WHERE id=?", (draw.randrange(ROWS),))
        digest.update(query.fetchone()[0])
    for key in range(0, 1000, 200):
        for (body,) in connection.execute("SELECT body FROM rows WHERE key=?", (key,)):
            digest.update(body)
    return digest.hexdigest()


what, directory = sys.argv[1:]
data, database = os.path.join(directory, "mapped.data"), os.path.join(directory, "mapped.sqlite")
if what == "make":
    make(data, database)
else:
    print("arrays", arrays(data))
    print("rows", rows(database))
