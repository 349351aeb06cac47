# Programs over mapped files: `mapped.py [make] MIB NAME=FILE...`. Each prints a digest of all that it
# read; and to standard error, a line a round, what that took: `took SECONDS BYTES-READ`, and last its
# own memory without files: `own BYTES`.
import hashlib
import mmap
import os
import random
import resource
import sys
import time

ROUNDS = 4
LOOKUPS = 2500
PAGE = 4096
COLUMNS = 4096
# A llama: width, width of the feed-forward part, words. A block of 32 weights is a scale and 32 bytes.
WIDTH, WIDE, WORDS = 2048, 5632, 2000
BLOCK, BLOCK_BYTES, SCALE = 32, 34, 0.0003


class Round:
    """Says what its body took."""

    @staticmethod
    def now():
        return time.monotonic(), resource.getrusage(resource.RUSAGE_SELF).ru_inblock * 512

    def __enter__(self):
        self.began = self.now()

    def __exit__(self, *_):
        seconds, read = (after - before for before, after in zip(self.began, self.now()))
        print(f"took {seconds:.6f} {read}", file=sys.stderr, flush=True)


def own_memory():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) << 10 for line in status if line.startswith("RssAnon:"))


def blocks(path, mib):
    """A file of noise, a MiB at a time."""
    with open(path, "wb") as file:
        for block in range(mib):
            file.write(random.Random(block).randbytes(1 << 20))


def arrays(path, mib):
    """One file, mapped shared and private: in order, backward, at random, with private stores."""
    digest, pages = hashlib.sha256(), (mib << 20) // PAGE
    with open(path, "rb") as file:
        shared = mmap.mmap(file.fileno(), 0, flags=mmap.MAP_SHARED, prot=mmap.PROT_READ)
        private = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
    for _ in range(2):
        with Round():
            digest.update(shared)
    for page in reversed(range(pages)):
        digest.update(shared[page * PAGE : page * PAGE + 16])
    draw = random.Random(9)
    for _ in range(2000):
        at = draw.randrange(pages * PAGE - 64)
        digest.update(shared[at : at + 64])
    for page in range(0, pages, 7):
        private[page * PAGE + 5] = page % 251
    digest.update(private)
    # Stores to one mapping are nobody else's.
    digest.update(shared)
    return digest


def matrix(path, mib):
    import numpy

    draw = numpy.random.default_rng(7)
    with open(path, "wb") as file:
        for _ in range((mib << 20) // (256 * COLUMNS * 4)):
            file.write(draw.standard_normal((256, COLUMNS), dtype=numpy.float32).tobytes())


def numpy_sweeps(path, mib):
    """Matrix times vector, by blocks of rows, over and over."""
    import numpy

    rows = (mib << 20) // (COLUMNS * 4)
    values = numpy.memmap(path, dtype=numpy.float32, mode="r", shape=(rows, COLUMNS))
    vector, digest = numpy.ones(COLUMNS, dtype=numpy.float32), hashlib.sha256()
    for _ in range(2 * ROUNDS):
        with Round():
            result = numpy.concatenate([values[at : at + 256] @ vector for at in range(0, rows, 256)])
        digest.update(result.tobytes())
        vector = vector * numpy.float32(0.5) + result[:COLUMNS].mean()
    return digest


def database_rows(mib):
    return (mib << 20) // 1100


def database(path, mib):
    import sqlite3

    connection = sqlite3.connect(path)
    connection.executescript("PRAGMA journal_mode=OFF; PRAGMA synchronous=OFF")
    connection.execute("CREATE TABLE rows(id INTEGER PRIMARY KEY, key INTEGER, body BLOB)")
    draw = random.Random(5)
    rows = ((number, draw.randrange(1000), draw.randbytes(1000)) for number in range(database_rows(mib)))
    connection.executemany("INSERT INTO rows VALUES(?, ?, ?)", rows)
    connection.execute("CREATE INDEX keys ON rows(key)")
    connection.commit()
    connection.close()


def sqlite_rows(path, mib):
    """Scans, lookups by key and by index, with the database mapped."""
    import sqlite3

    # Opened for writing nobody but the kernel may map it.
    connection = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    connection.execute(f"PRAGMA mmap_size={1 << 40}")
    draw, digest = random.Random(1), hashlib.sha256()
    for key in range(ROUNDS):
        with Round():
            for (body,) in connection.execute("SELECT body FROM rows"):
                digest.update(body)
            for _ in range(LOOKUPS):
                wanted = (draw.randrange(database_rows(mib)),)
                digest.update(connection.execute("SELECT body FROM rows WHERE id=?", wanted).fetchone()[0])
            for (body,) in connection.execute("SELECT body FROM rows WHERE key=?", (200 * key,)):
                digest.update(body)
    return digest


def tree_rows(mib):
    return (mib << 20) // 1400


def tree_key(number):
    return f"{number:012}".encode()


def tree(path, mib):
    import lmdb

    environment = lmdb.open(path, map_size=mib << 21, subdir=False, sync=False, lock=False)
    draw = random.Random(3)
    with environment.begin(write=True) as transaction:
        for number in range(tree_rows(mib)):
            transaction.put(tree_key(number), draw.randbytes(1000), append=True)
    environment.sync(True)
    environment.close()


def lmdb_rows(path, mib, readahead):
    """Lookups at random, and a walk with a cursor at last."""
    import lmdb

    environment = lmdb.open(path, readonly=True, lock=False, readahead=readahead, subdir=False)
    draw, digest = random.Random(1), hashlib.sha256()
    with environment.begin(buffers=True) as transaction:
        for _ in range(ROUNDS):
            with Round():
                for _ in range(LOOKUPS):
                    digest.update(transaction.get(tree_key(draw.randrange(tree_rows(mib)))))
        for key, value in transaction.cursor():
            digest.update(key)
            digest.update(value)
    return digest


def llama(path, mib):
    """A model of noise, with as many layers as make the size."""
    import gguf
    import numpy

    def weights(rows, columns):
        return (rows, columns // BLOCK * BLOCK_BYTES)

    square, up, down = weights(WIDTH, WIDTH), weights(WIDE, WIDTH), weights(WIDTH, WIDE)
    names = {f"attn_{part}": square for part in ["q", "k", "v", "output"]}
    names |= {"ffn_gate": up, "ffn_up": up, "ffn_down": down, "attn_norm": WIDTH, "ffn_norm": WIDTH}
    layer = sum(shape[0] * shape[1] for shape in names.values() if shape != WIDTH)
    layers = -(-(mib << 20) // layer)
    words = weights(WORDS, WIDTH)
    tensors = {"token_embd.weight": words, "output.weight": words, "output_norm.weight": WIDTH}
    for number in range(layers):
        tensors |= {f"blk.{number}.{name}.weight": shape for name, shape in names.items()}

    writer = gguf.GGUFWriter(path, "llama")
    writer.add_context_length(256)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(layers)
    writer.add_feed_forward_length(WIDE)
    writer.add_head_count(16)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(WIDTH // 16)
    writer.add_vocab_size(WORDS)
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_Q8_0)
    writer.add_tokenizer_model("none")
    for name, shape in tensors.items():
        if shape == WIDTH:
            writer.add_tensor_info(name, [WIDTH], numpy.dtype(numpy.float32), 4 * WIDTH)
        else:
            kind = gguf.GGMLQuantizationType.Q8_0
            size = shape[0] * shape[1]
            writer.add_tensor_info(name, shape, numpy.dtype(numpy.uint8), size, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    draw = numpy.random.default_rng(11)
    scale = numpy.frombuffer(numpy.float16(SCALE).tobytes(), dtype=numpy.uint8)
    for shape in tensors.values():
        if shape == WIDTH:
            data = numpy.ones(WIDTH, dtype=numpy.float32)
        else:
            data = numpy.frombuffer(draw.bytes(shape[0] * shape[1]), dtype=numpy.uint8).reshape(shape).copy()
            for byte in range(2):
                data[:, byte::BLOCK_BYTES] = scale[byte]
        writer.write_tensor_data(data)
    writer.close()


# How each makes its file, and reads it. A llama's reader is another program.
PROGRAMS = {
    "arrays": (blocks, arrays),
    "numpy": (matrix, numpy_sweeps),
    "sqlite3": (database, sqlite_rows),
    "lmdb": (tree, lambda path, mib: lmdb_rows(path, mib, readahead=True)),
    "lmdb-random": (tree, lambda path, mib: lmdb_rows(path, mib, readahead=False)),
    "llama": (llama, None),
}


def main(words):
    makes = words[0] == "make"
    mib, *pairs = words[1:] if makes else words
    for name, path in (pair.split("=", 1) for pair in pairs):
        make, read = PROGRAMS[name]
        if not makes:
            print(name, read(path, int(mib)).hexdigest(), flush=True)
            print(f"own {own_memory()}", file=sys.stderr, flush=True)
            continue
        make(path + ".new", int(mib))
        descriptor = os.open(path + ".new", os.O_RDWR)
        os.fsync(descriptor)
        os.close(descriptor)
        os.rename(path + ".new", path)


main(sys.argv[1:])
