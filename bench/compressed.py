#!/usr/bin/python3
"""The compressed pool against the kernel's swap on zram and through zswap, with the same memory all told, in turns.

usage: compressed.py OVERSPILL DIRECTORY [RAM_MIB [RUNS]]    600 MiB, 3 runs of each; root, zram and zswap

The load is half as large again as the RAM. Of its pages a half or three quarters are zeroes and the rest is noise, so they shrink to
about a half and a quarter. Overspill's budget holds its pool. The kernel's pool is not charged to the memory cgroup (of version 1),
so the cgroup gets what the budget leaves beside that pool: how far pages shrink is measured first, by one run. Kernel's settings:
zram with each compressor that it has, zswap with its own before a swap file in DIRECTORY, each with page-cluster 0 and 3. A line for each run;
then medians, and the ratio to the kernel's best. Everything is put back, also when it is interrupted."""
import contextlib, json, os, signal, statistics, subprocess, sys

CGROUP = "/sys/fs/cgroup/memory/overspill-compressed"
ZRAM, ZSWAP, DEBUG = "/sys/block/zram0", "/sys/module/zswap/parameters", "/sys/kernel/debug/zswap"
CLUSTER = "/proc/sys/vm/page-cluster"
LOADS = {"seq": ["seq", "--laps", "3"], "random, 1 thread": ["random", "--laps", "2"],
         "random, 8 threads": ["random", "--threads", "8", "--laps", "2"]}

def read(path):
    with open(path) as file:
        return file.read().strip()

def write(path, value):
    with open(path, "w") as file:
        file.write(str(value))

@contextlib.contextmanager
def kept(path, value):
    """A setting that is `value` within, and afterwards what it was."""
    before = read(path)
    write(path, value)
    try:
        yield
    finally:
        write(path, before)

@contextlib.contextmanager
def swap_on(place):
    subprocess.run(["mkswap", place], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    subprocess.run(["swapon", "--priority", "100", place], check=True)
    try:
        yield
    finally:
        subprocess.run(["swapoff", place], check=True)

class Zram:
    def __init__(self, compressor, mib):
        self.name, self.compressor, self.mib = f"zram {compressor}", compressor, mib

    @contextlib.contextmanager
    def on(self):
        write(f"{ZRAM}/reset", 1)
        write(f"{ZRAM}/comp_algorithm", self.compressor)
        write(f"{ZRAM}/disksize", f"{self.mib}M")
        try:
            with swap_on("/dev/zram0"):
                yield
        finally:
            write(f"{ZRAM}/reset", 1)

    def pool(self):
        """Bytes of pages, bytes that they take; at the most that there were of the latter."""
        stat = list(map(int, read(f"{ZRAM}/mm_stat").split()))
        return stat[0], stat[2], stat[4]

class Zswap:
    def __init__(self, mib, directory):
        self.name, self.mib = "zswap " + read(f"{ZSWAP}/compressor"), mib
        self.file = os.path.join(directory, "overspill-compressed-swap")

    @contextlib.contextmanager
    def on(self):
        with open(self.file, "wb") as file:
            os.fchmod(file.fileno(), 0o600)
            os.posix_fallocate(file.fileno(), 0, self.mib << 20)
        try:
            with kept(f"{ZSWAP}/enabled", "Y"), swap_on(self.file):
                yield
        finally:
            os.remove(self.file)

    def pool(self):
        taken = int(read(f"{DEBUG}/pool_total_size"))
        return int(read(f"{DEBUG}/stored_pages")) * 4096, taken, taken

@contextlib.contextmanager
def cgroup(mib):
    os.mkdir(CGROUP)
    write(f"{CGROUP}/memory.limit_in_bytes", f"{mib}M")
    try:
        yield
    finally:
        os.rmdir(CGROUP)

def speed(output):
    return json.loads(output)["touches_per_second"]

def under_kernel(load, way, cluster, limit):
    """Touches a second, or none where the kernel killed it; the pool while the load's memory was there."""
    enter = ["sh", "-c", f'echo $$ > {CGROUP}/cgroup.procs; exec "$@"', "sh"]
    with way.on(), cgroup(limit), kept(CLUSTER, cluster):
        process = subprocess.Popen(enter + load, stdout=subprocess.PIPE, text=True)
        most = (0, 0, 0)
        try:
            while process.poll() is None:
                most = max(most, way.pool())
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(0.02)
            output = process.stdout.read()
        finally:
            process.kill()
            process.wait()
    return (speed(output) if process.returncode == 0 else None), most

def under_overspill(overspill, load, ram, options):
    run = [overspill, "run", "--ram", f"{ram}M", "--quiet", *options, "--", *load]
    return speed(subprocess.run(run, check=True, stdout=subprocess.PIPE, text=True).stdout)

def limit_beside(way, load, ram, size):
    """What the cgroup may have so that it and the pool are `ram` together, by how far pages shrink in a first run."""
    _, (pages, taken, _) = under_kernel(load, way, 0, ram * 3 // 4)
    share = taken / pages
    return int((ram - share * size) / (1 - share)), share

def compare(overspill, directory, ram, runs, zeroes):
    size = ram * 3 // 2
    ways = [Zram(name.strip("[]"), size * 2) for name in read(f"{ZRAM}/comp_algorithm").split()]
    ways.append(Zswap(size * 2, directory))
    kernel = {}
    for title, pattern in LOADS.items():
        load = [overspill, "load", *pattern, "--size", f"{size}M", "--compressible", str(zeroes)]
        if not kernel:
            for way in ways:
                kernel[way] = limit_beside(way, load, ram, size)
                print(f"  {way.name}: pages shrink to {kernel[way][1]:.3f}, cgroup {kernel[way][0]} MiB", flush=True)
        results = {}
        for _ in range(runs):
            for way, (limit, _) in kernel.items():
                for cluster in (0, 3):
                    got, (_, taken, _) = under_kernel(load, way, cluster, limit)
                    results.setdefault(f"{way.name}, page-cluster {cluster}", []).append(got)
                    print(f"    {title}: {way.name} {cluster}: {got and round(got)} touches/s, "
                          f"{limit + (taken >> 20)} MiB all told", flush=True)
            for name, options in (("overspill", []), ("overspill --fixed-pool", ["--fixed-pool"])):
                results.setdefault(name, []).append(under_overspill(overspill, load, ram, options))
                print(f"    {title}: {name}: {results[name][-1]:.0f} touches/s", flush=True)
        alive = {name: statistics.median(got for got in all_ if got) for name, all_ in results.items() if any(all_)}
        best = max((name for name in alive if not name.startswith("overspill")), key=alive.get)
        for name in ("overspill", "overspill --fixed-pool"):
            print(f"  {title}: {name} {alive[name]:.0f}, kernel's best {alive[best]:.0f} ({best}): "
                  f"{alive[name] / alive[best]:.2f}x", flush=True)

def main(overspill, directory, ram=600, runs=3):
    for zeroes, told in ((50, "2:1"), (75, "4:1")):
        print(f"{ram * 3 // 2} MiB in {ram} MiB, pages that shrink {told}", flush=True)
        compare(overspill, directory, ram, runs, zeroes)

if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    main(sys.argv[1], sys.argv[2], *map(int, sys.argv[3:]))
