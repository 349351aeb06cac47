#!/usr/bin/env python3
"""What `overspill sim TRACE` says of a run's time, beside runs: sort, python objects, sqlite3 and a compiler, each traced once.

For each program: its time with RAM to spare; a live trace at 40 % of its pages (`run --trace`), or with --exact one by valgrind
(`record`, of a smaller input); then runs at several budgets, and the trace simulated with the RAM that the agent left for the
program's pages in each, on a model of this disk. Medians of --runs; ratios are to the time with RAM to spare. As root or with
userfaultfd allowed, on a quiet machine:

    bench/explain.py --overspill target/release/overspill > bench/results/DATE-explain.txt
"""

import argparse
import json
import os
import pathlib
import random
import statistics
import subprocess
import tempfile
import time

SHARES = [45, 60, 75, 90]
TRACED_AT = 40
OBJECTS = """
import random
random.seed(7)
class Node:
    __slots__ = ("key", "name", "next")
    def __init__(self, key):
        self.key, self.name, self.next = key, f"node {key}", None
nodes = [Node(key) for key in range(%d)]
for start in range(0, len(nodes), 5000):
    part = nodes[start : start + 5000]
    random.shuffle(part)
    for one, other in zip(part, part[1:]):
        one.next = other
total = 0
for lap in range(4):
    for node in nodes:
        total += node.key + (len(node.next.name) if node.next else 0)
print(total)
"""
DATABASE = """
create table t(a integer primary key, b integer, c text);
with recursive n(x) as (select 1 union all select x + 1 from n where x < %d)
insert into t select x, (x * 7919) %% 400009, 'row number ' || x from n;
create index i on t(b);
select count(*), sum(a) from t where b between 1000 and 90000;
select count(*) from t x join t y on y.b = x.a where x.a %% 5 = 0;
update t set c = c || '!' where a %% 3 = 0;
select sum(length(c)) from t;
"""
FUNCTION = """int f%d(int a, int b) { int s = %d; for (int k = 0; k < a; k++) { if (k %% 5) s += b * k; else s ^= use(s + k); }
switch (s & 7) { case 0: return s + 1; case 3: return use(s) - b; case 5: return a; default: return s * b; } }
"""


def programs(work, exact):
    """Name and command; what valgrind is to see is a fiftieth."""
    scale = 50 if exact else 1
    numbers = [f"{number}\n" for number in range(1_200_000 // scale)]
    random.Random(3).shuffle(numbers)
    (work / "numbers").write_text("".join(numbers))
    (work / "objects.py").write_text(OBJECTS % (300_000 // scale))
    (work / "database.sql").write_text(DATABASE % (400_000 // scale))
    (work / "source.c").write_text("int use(int);\n" + "".join(FUNCTION % (n, n) for n in range(800 // scale)))
    compiler = subprocess.run(["gcc", "-print-prog-name=cc1"], capture_output=True, text=True, check=True).stdout.strip()
    return {
        "sort": ["sort", "-S", "2G", "--parallel=2", work / "numbers"],
        "python objects": ["/usr/bin/python3", work / "objects.py"],
        "sqlite3": ["sqlite3", ":memory:", f".read {work / 'database.sql'}"],
        "gcc": [compiler, "-quiet", "-O1", work / "source.c", "-o", work / "source.s"],
    }


class Bench:
    def __init__(self, overspill, work):
        self.overspill, self.work = overspill, work
        self.environment = {**os.environ, "LC_ALL": "C"}
        self.model = work / "disk.toml"
        self.call("sim", "calibrate", "/var/tmp", "-o", self.model)

    def call(self, *words):
        command = [self.overspill, *map(str, words)]
        done = subprocess.run(command, env=self.environment, capture_output=True, text=True)
        assert done.returncode == 0, f"{command}: {done.stderr}"
        return done.stdout

    def run(self, ram, command, *options):
        """The agent's report of a run in so many bytes."""
        report = self.work / "report.json"
        self.call("run", "-q", "--ram", ram, "--swap", "/var/tmp", "--json", report, *options, "--", *command)
        return json.loads(report.read_text())

    def simulate(self, trace, rams):
        """Rows by RAM; the last is RAM to spare."""
        text = self.call("sim", trace, "--json", "--device", self.model, "--ram", ",".join(rams))
        return json.loads(text)["rows"]

    def sentence(self, trace):
        lines = self.call("sim", trace, "--explain", "--device", self.model).splitlines()
        return [line for line in lines if "of unlimited RAM" in line or line.startswith("caution")]


def pages_left(report):
    """What the agent left for the program's pages, in bytes: the mean over a run."""
    pager = report["processes"][0]["pager"]
    return pager["budget_sum_bytes"] // max(pager["budget_samples"], 1)


def program(bench, name, command, runs, exact):
    spare = [bench.run(4 << 30, command) for _ in range(runs)]
    peak = spare[0]["resident_peak_bytes"]
    bare = statistics.median(report["wall_seconds"] for report in spare)
    trace = bench.work / "trace.ovt"
    if exact:
        bench.call("record", "-o", trace, "--", *command)
    else:
        bench.run(peak * TRACED_AT // 100, command, "--trace", trace)
    real = {share: [bench.run(peak * share // 100, command) for _ in range(runs)] for share in SHARES}
    left = [statistics.median_low(pages_left(report) for report in real[share]) for share in SHARES]
    # A run that nobody managed had all the RAM that it wanted.
    rams = [str(bytes) if bytes > 0 else "150%" for bytes in left]
    rows = bench.simulate(trace, rams + ["150%"])
    unlimited = rows[-1]["elapsed_ns"] / 1e9
    print(f"{name}: {peak / 2**20:.1f} MiB; {bare:.2f} s with RAM to spare, {unlimited:.2f} s simulated")
    print("   RAM, MiB   left   pages in: real   simulated    time: real   simulated")
    for share, bytes, reports, row in zip(SHARES, left, real.values(), rows):
        wall = statistics.median(report["wall_seconds"] for report in reports)
        read = statistics.median(report["vmstat"]["pswpin"] for report in reports)
        ratio = row["elapsed_ns"] / 1e9 / unlimited
        ram = peak * share / 100 / 2**20
        print(f"{ram:11.1f} {bytes / 2**20:6.1f} {read:16.0f} {row['pswpin']:11d} {wall / bare:12.2f}x {ratio:10.2f}x")
    print("   " + "\n   ".join(bench.sentence(trace)), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--overspill", type=pathlib.Path, default="target/release/overspill")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--only", help="one of the programs")
    parser.add_argument("--exact", action="store_true", help="traces by valgrind; budgets this small say more of pages than of time")
    options = parser.parse_args()
    print(time.strftime("date     %Y-%m-%d"), f"command  bench/explain.py --runs {options.runs}", sep="\n")
    with tempfile.TemporaryDirectory(dir="/var/tmp") as directory:
        work = pathlib.Path(directory)
        bench = Bench(options.overspill.resolve(), work)
        for name, command in programs(work, options.exact).items():
            if options.only in (None, name):
                program(bench, name, command, options.runs, options.exact)


if __name__ == "__main__":
    main()
