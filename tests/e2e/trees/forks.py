"""Children of fork that share most of what they have with their parent, and compute a little."""

import os
import sys
import time

inherited = bytearray(os.urandom(1 << 20)) * 6


def compute():
    total = 0
    for _ in range(20):
        total += sum(x * x % 7 for x in range(3000))
        time.sleep(0.02)
    os._exit(0 if total > 0 and len(inherited) == 6 << 20 else 1)


children = []
for _ in range(int(sys.argv[1])):
    child = os.fork()
    if child == 0:
        compute()
    children.append(child)
sys.exit(any(os.waitpid(child, 0)[1] for child in children))
