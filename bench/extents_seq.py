#!/usr/bin/python3
"""`bench seq` on a swap file in many pieces against one in few, in turns.

usage: extents_seq.py OVERSPILL DIRECTORY [PIECES [RUNS [KIB]]]    20000 pieces of 64 KiB, 5 pairs of runs; root

The published pieces have 1024 KiB. The directory's file system must be able to take a part out of a file (ext4, XFS).
It needs room for twice the file (2.4 GiB), which is gone afterwards. The load takes three quarters of it, 3 GiB at most. Prints FIEMAP's count for both (`swap info`), a line for
each run, and the ratio of the medians."""
import ctypes, json, os, statistics, subprocess, sys

LOAD_MIB = 3 << 10
COLLAPSE_RANGE = 8

libc = ctypes.CDLL(None, use_errno=True)
libc.fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]

def fallocate(file, mode, at, count):
    if libc.fallocate(file.fileno(), mode, at, count) != 0:
        raise OSError(ctypes.get_errno(), "fallocate")

def make(overspill, path, pieces, piece, apart):
    with open(path, "wb") as file:
        os.fchmod(file.fileno(), 0o600)
        fallocate(file, 0, 0, (2 if apart else 1) * pieces * piece)
        if apart:
            # From the end on: what has to be renumbered is in pieces already, but the fewest.
            for number in reversed(range(pieces - 1)):
                fallocate(file, COLLAPSE_RANGE, (2 * number + 1) * piece, piece)
        os.ftruncate(file.fileno(), pieces * piece)
        os.fsync(file.fileno())
    subprocess.run([overspill, "swap", "make", path, "--erase"], check=True, stdout=subprocess.DEVNULL)
    print(subprocess.run([overspill, "swap", "info", path], check=True, capture_output=True, text=True).stdout)

def touches(overspill, path, bytes, scratch):
    """Touches a second, and the parts of the requests, of one run that writes through most of the file twice."""
    size, report = min(bytes * 3 // 4 >> 20, LOAD_MIB), os.path.join(scratch, "overspill-extents-report.json")
    load = [overspill, "bench", "seq", "--size", f"{size}M", "--ram", f"{size // 4}M", "--laps", "2", "--write"]
    way = ["--swap", path, "--ways", "overspill", "--runs", "1", "--max-pool-percent", "0", "--json", report]
    subprocess.run(load + way, check=True, stdout=subprocess.DEVNULL)
    with open(report) as file:
        told = json.load(file)
    os.remove(report)
    run, speed = told["runs"][0], told["medians"][0]["touches_per_second"]
    pager = run["overspill"]["pager"]
    print(f"  {os.path.basename(path)}: {speed:.0f} touches/s, {run['swap_in_bytes'] >> 20} MiB in by "
          f"{pager['read_ops']} reads, {run['swap_out_bytes'] >> 20} MiB out by {pager['write_ops']} writes", flush=True)
    return speed

def main(overspill, directory, pieces=20000, runs=5, kib=64):
    piece = kib << 10
    paths = [os.path.join(directory, f"overspill-extents-{name}") for name in ("whole", "pieces")]
    try:
        # The one that takes twice its size for a moment is first.
        for path, apart in zip(reversed(paths), (True, False)):
            make(overspill, path, pieces, piece, apart)
        pairs = [[touches(overspill, path, pieces * piece, directory) for path in paths] for _ in range(runs)]
        whole, apart = (statistics.median(values) for values in zip(*pairs))
        print(f"in pieces {apart / whole:.3f} of whole (medians of {runs} runs in turn; the goal is 0.9)")
    finally:
        for path in paths:
            if os.path.exists(path):
                os.remove(path)

if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], *map(int, sys.argv[3:]))
