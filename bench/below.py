#!/usr/bin/env python3
"""What it costs to run a program under `overspill run` that stays below 70 % of its budget: bare and managed runs in turns.

usage: below.py OVERSPILL PAIRS SCRATCH NAME...    one line of JSON for each pair, then a line for each program

The order within a pair changes from pair to pair. CPU time is that of all processes, the launcher's and the agent's included."""
import json, os, random, statistics, subprocess, sys, time

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
    return lines, source

def programs(scratch):
    lines, source = prepare(scratch)
    objects = "d = {}\nfor i in range(2000000): d[i] = [i, str(i)]\nprint(sum(v[0] for v in d.values()))"
    count = "s = 0\nfor i in range(30000000): s = (s * 31 + i) & 0xffff\nprint(s)"
    return {
        "cpu": ("64M", ["python3", "-c", count]),
        "objects": ("800M", ["python3", "-c", objects]),
        "sort": ("350M", ["sort", "--parallel=1", "-S", "900M", "-o", "/dev/null", lines]),
        "gcc": ("170M", ["gcc", "-O1", "-c", "-o", "/dev/null", source]),
    }

def run(command):
    began = time.monotonic()
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL, env={**os.environ, "LC_ALL": "C"})
    _, status, usage = os.wait4(child.pid, 0)
    assert status == 0, (command, status)
    return {"wall": time.monotonic() - began, "cpu": usage.ru_utime + usage.ru_stime, "maxrss_kib": usage.ru_maxrss}

def interval(values, rng):
    medians = sorted(statistics.median(rng.choices(values, k=len(values))) for _ in range(4000))
    return medians[100], medians[-101]

overspill, pairs, scratch, names = sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4:]
rng = random.Random(7)
for name, (ram, command) in programs(scratch).items():
    if names and name not in names:
        continue
    ways = {"bare": command, "overspill": [overspill, "run", "-q", "--ram", ram, "--", *command]}
    for way in ways.values():
        run(way)
    rows = []
    for pair in range(pairs):
        order = ["bare", "overspill"] if pair % 2 else ["overspill", "bare"]
        row = {way: run(ways[way]) for way in order}
        rows.append(row)
        print(json.dumps({"program": name, "pair": pair, **row}), flush=True)
    for what in ("wall", "cpu"):
        ratios = [row["overspill"][what] / row["bare"][what] for row in rows]
        low, high = interval(ratios, rng)
        bare = statistics.median(row["bare"][what] for row in rows)
        print(f"# {name}: {what} bare {bare:.3f} s; ratio {statistics.median(ratios):.4f}, 95 % interval {low:.4f} to {high:.4f} ({pairs} pairs)", flush=True)
