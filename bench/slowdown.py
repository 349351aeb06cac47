#!/usr/bin/python3
"""How far the slowdown that `overspill run` tells is from the truth.

usage: slowdown.py OVERSPILL SCRATCH [NAME...]    a line of JSON for each program and budget

The truth is the wall time of the run over that of runs with RAM enough, one before and one after it, bare. Budgets are parts of
what the program needs, as a first managed run with RAM enough tells. What a program writes must be the same in each."""
import json, os, random, subprocess, sys, time

PYTHON = "/usr/bin/python3"
PARTS = [0.9, 0.75, 0.6, 0.45]
LIMIT_SECONDS = 75
C = r"""
#include <stdio.h>
#include <stdlib.h>
#include <stdint.h>
int main(int argc, char **argv) {
    size_t bytes = strtoul(argv[1], 0, 10) << 20; long touches = atol(argv[2]), work = atol(argv[3]);
    uint64_t *words = malloc(bytes), x = 88172645463325252ull, sum = 0;
    for (size_t i = 0; i < bytes / 8; i++) words[i] = (i + 1) * 0x9E3779B97F4A7C15ull;
    for (long i = 0; i < touches; i++) {
        x ^= x << 13; x ^= x >> 7; x ^= x << 17;
        uint64_t *word = &words[x % (bytes / 8)];
        for (long n = 0; n < work; n++) sum = sum * 31 + *word;
        *word += sum;
    }
    printf("%llu\n", (unsigned long long)sum);
}
"""
OBJECTS = """
import random
random.seed(1)
objects = [{'key': i, 'text': str(i)} for i in range(%d)]
if %d: random.shuffle(objects)
total = 0
for lap in range(%d):
    for each in objects: total += each['key'] + len(each['text'])
print(total)
"""
SQL = """
pragma cache_size=-400000; pragma temp_store=2;
create table t(k integer primary key, v text, w integer);
insert into t select value, hex(randomblob(0)) || printf('%%064d', value * 7919), (value * 2654435761) %% 400000 from generate_series(1, %d);
create index i on t(w);
select count(*), sum(length(v)) from t;
select sum(length(b.v)) from (select value x from generate_series(1, %d)) join t b on b.k = 1 + (x * 48271) %% %d;
"""

def programs(scratch):
    source, touches = os.path.join(scratch, "touches.c"), os.path.join(scratch, "touches")
    with open(source, "w") as file:
        file.write(C)
    subprocess.run(["cc", "-O2", "-o", touches, source], check=True)
    lines = os.path.join(scratch, "lines3m")
    if not os.path.exists(lines):
        rng = random.Random(1)
        with open(lines, "w") as file:
            file.writelines(f"{rng.getrandbits(60)}\n" for _ in range(3_000_000))
    return {
        "python, in order": [PYTHON, "-c", OBJECTS % (400_000, 0, 6)],
        "python, shuffled": [PYTHON, "-c", OBJECTS % (300_000, 1, 1)],
        "sqlite3": ["sqlite3", ":memory:", SQL % (700_000, 300_000, 700_000)],
        "sort": ["sort", "-S", "400M", "--parallel=1", lines],
        "sort, two threads": ["sort", "-S", "400M", "--parallel=2", lines],
        "C, random": [touches, "128", "60000", "1"],
        "C, random, computes": [touches, "128", "30000", "30000"],
    }

def timed(command):
    began = time.monotonic()
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    return time.monotonic() - began, done.stdout

def managed(overspill, ram_bytes, command, scratch):
    path = os.path.join(scratch, "slowdown.json")
    options = ["run", "--quiet", "--ram", f"{ram_bytes >> 20}M", "--json", path, "--"]
    _, output = timed(["timeout", str(LIMIT_SECONDS), overspill, *options, *command])
    with open(path) as file:
        return json.load(file), output

def main():
    overspill, scratch, *names = sys.argv[1:]
    for name, command in programs(scratch).items():
        if names and name not in names:
            continue
        report, output = managed(overspill, 2 << 30, command, scratch)
        needed = report["tree_peak_bytes"]
        before, expected = timed(command)
        assert output == expected
        for part in PARTS:
            report, output = managed(overspill, int(needed * part), command, scratch)
            after, _ = timed(command)
            cut = report["signal"] is not None or output != expected
            assert cut or report["vmstat"]["pswpout"] + report["vmstat"]["zswpout"] > 0, "nothing was paged"
            bare = (before + after) / 2
            before = after
            row = {"program": name, "needed_mib": needed >> 20, "ram_mib": report["ram_bytes"] >> 20, "bare_s": round(bare, 3),
                   "wall_s": round(report["wall_seconds"], 2), "truth": round(report["wall_seconds"] / bare, 2), "told": report["slowdown"],
                   "cut": cut, "load": os.getloadavg()[0]}
            for key in ["user_seconds", "system_seconds", "agent_seconds", "agent_system_seconds", "blocked_seconds", "waiting_seconds", "stalled_seconds"]:
                row[key] = round(report[key], 3)
            row["soft"], row["major"] = report["soft_faults"]["count"], report["major_faults"]["count"]
            row["pager"] = {k: v for k, v in report["pager"].items() if "bytes" not in k and v}
            row["vmstat"] = {k: v for k, v in report["vmstat"].items() if v}
            print(json.dumps(row), flush=True)

main()
