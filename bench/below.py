#!/usr/bin/python3
"""What it costs to run a program under `overspill run` that stays below 70 % of its budget.

usage: below.py OVERSPILL PAIRS SCRATCH NAME...    one line of JSON for each pair, then a line for each program

A pair is a bare and a managed run of one program, side by side on one processor, so that the scheduler gives it to one and to the
other every few milliseconds. A host's speed changes by tenths from one second to the next: runs one after the other differ by
more than what is to be measured. What is compared is processor time, of all processes and threads, launcher and agent included,
from start to end, and the time from start to end itself, of which each has the half here. For programs that never wait this is the time that they take where they have a processor to themselves; it is
somewhat more than that, since the agent looks at its program as often while the other one runs.

Stopping one while the other runs (SIGSTOP, turns of 20 ms) measures the stops: the agent then took three times as much."""
import json, os, random, statistics, subprocess, sys, time

# Not whatever is first in PATH: a wrapper written in shell may start twenty processes before the program.
PYTHON = "/usr/bin/python3"
# The programs have one processor, this script the others.
*OTHERS, LAST = sorted(os.sched_getaffinity(0))
PROCESSOR = str(LAST)
os.sched_setaffinity(0, OTHERS or [LAST])

def rng_bytes(count):
    return random.Random(2).randbytes(count)

def prepare(scratch):
    lines = os.path.join(scratch, "lines4m")
    if not os.path.exists(lines):
        rng = random.Random(1)
        with open(lines, "w") as file:
            file.writelines(f"{rng.getrandbits(40)}\n" for _ in range(4_000_000))
    source = os.path.join(scratch, "large.c")
    if not os.path.exists(source):
        with open(source, "w") as file:
            for n in range(1500):
                file.write(f"int f{n}(int *a, int n) {{ int s = {n}; for (int i = 0; i < n; i++) s += a[i] * {n} ^ (s >> {n % 13}); return s; }}\n")
    mapped = os.path.join(scratch, "mapped64m")
    if not os.path.exists(mapped):
        with open(mapped, "wb") as file:
            file.write(rng_bytes(64 << 20))
            os.fsync(file.fileno())
    return lines, source, mapped

def programs(scratch):
    lines, source, mapped = prepare(scratch)
    objects = "d = {}\nfor i in range(2000000): d[i] = [i, str(i)]\nprint(sum(v[0] for v in d.values()))"
    count = "s = 0\nfor i in range(60000000): s = (s * 31 + i) & 0xffff\nprint(s)"
    # A mapped file of a quarter of the budget: all of it again and again, and pages of it in no order.
    reads = f"""import mmap, random, zlib
file = open({mapped!r}, 'rb')
m = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
s, rng = 0, random.Random(1)
for lap in range(60):
    s = zlib.crc32(m, s)
    for _ in range(20000): s += m[rng.randrange(len(m))]
print(s)"""
    return {
        "cpu": (["--ram=64M"], [PYTHON, "-c", count]),
        "objects": (["--ram=800M"], [PYTHON, "-c", objects]),
        "sort": (["--ram=350M"], ["sort", "--parallel=1", "-S", "900M", "-o", "/dev/null", lines]),
        "gcc": (["--ram=170M"], ["gcc", "-O1", "-c", "-o", "/dev/null", source]),
        "files": (["--ram=256M", "--files=1M"], [PYTHON, "-c", reads]),
    }

def side_by_side(commands):
    """Runs commands together on one processor; for each its processor time, all processes and threads included, and its time."""
    environment = {**os.environ, "LC_ALL": "C", "PYTHONHASHSEED": "0"}
    pinned = [["taskset", "-c", PROCESSOR, *command] for command in commands]
    children, times = {}, {}
    for command in pinned:
        began = time.monotonic()
        child = subprocess.Popen(command, stdout=subprocess.DEVNULL, env=environment)
        children[child.pid] = (child, began)
    while len(times) < len(children):
        pid, status, usage = os.wait4(-1, 0)
        child, began = children[pid]
        assert status == 0, (child.args, status)
        child.returncode = 0
        times[pid] = (usage.ru_utime + usage.ru_stime, time.monotonic() - began)
    return [times[pid] for pid in children]

def interval(values, rng):
    medians = sorted(statistics.median(rng.choices(values, k=len(values))) for _ in range(4000))
    return medians[100], medians[-101]

if len(sys.argv) < 4 or not sys.argv[2].isdecimal():
    sys.exit("usage: below.py OVERSPILL PAIRS SCRATCH NAME...")
overspill, pairs, scratch, names = sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4:]
rng = random.Random(7)
for name, (options, command) in programs(scratch).items():
    if names and name not in names:
        continue
    rows = []
    for pair in range(pairs):
        bare, managed = command, [overspill, "run", "-q", *options, "--", *command]
        # Who starts first changes from pair to pair.
        times = side_by_side([bare, managed]) if pair % 2 else side_by_side([managed, bare])[::-1]
        (bare_processor, bare_elapsed), (processor, elapsed) = times
        rows.append({"bare": bare_processor, "overspill": processor,
                     "bare_elapsed": bare_elapsed, "overspill_elapsed": elapsed})
        print(json.dumps({"program": name, "pair": pair, **rows[-1]}), flush=True)
    for what, suffix in (("processor time", ""), ("elapsed", "_elapsed")):
        ratios = [row["overspill" + suffix] / row["bare" + suffix] for row in rows]
        low, high = interval(ratios, rng)
        bare = statistics.median(row["bare" + suffix] for row in rows)
        print(f"# {name}, {what}: bare {bare:.3f} s; ratio {statistics.median(ratios):.4f}, "
              f"95 % interval {low:.4f} to {high:.4f} ({pairs} pairs)", flush=True)
