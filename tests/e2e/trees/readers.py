"""Children of fork that only read what they have inherited, in pages, and then store to a part of it.

usage: readers.py CHILDREN MIB PERCENT
"""
import mmap
import os
import sys
import time

CHILDREN, MIB, PERCENT = map(int, sys.argv[1:])
PAGE, SIZE = 4096, MIB << 20


def work(number):
    sums = set()
    until = time.time() + 2
    while time.time() < until:
        sums.add(sum(memory[at] for at in range(0, SIZE, PAGE * 7)))
        time.sleep(0.05)
    stored = range(0, SIZE * PERCENT // 100, PAGE)
    for at in stored:
        memory[at] = number
    is_right = all(memory[at] == number for at in stored) and len(sums) == 1
    os._exit(0 if is_right else 1)


memory = mmap.mmap(-1, SIZE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
for _ in range(MIB):
    memory.write(os.urandom(1 << 20))
children = [os.fork() or work(number) for number in range(CHILDREN)]
os._exit(1 if sum(os.waitpid(child, 0)[1] for child in children) else 0)
