# Millions of small objects of several kinds, built, mutated, sorted and dropped; prints a digest of all of them.
import hashlib

COUNT = 400_000


class Record:
    __slots__ = ("number", "name", "pair")

    def __init__(self, number):
        self.number = number
        self.name = f"record {number * 2654435761 % 1000003}"
        self.pair = (number, -number)


state = 12345


def random_below(bound):
    global state
    state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
    return (state >> 33) % bound


records = [Record(number) for number in range(COUNT)]
by_name = {}
for record in records:
    by_name.setdefault(record.name, []).append(record)
for _ in range(COUNT // 20):
    record = records[random_below(COUNT)]
    record.pair = (record.number, record.pair[1] * 3 % 1000003)
records.sort(key=lambda record: (record.name, record.number))
del records[::3]
more = {number: str(number) * 3 for number in range(0, COUNT, 2)}

digest = hashlib.sha256()
for record in records:
    digest.update(f"{record.number} {record.name} {record.pair}\n".encode())
for name in sorted(by_name):
    digest.update(f"{name} {len(by_name[name])}\n".encode())
for number, text in more.items():
    digest.update(f"{number}{text}".encode())
print(len(records), len(by_name), len(more), digest.hexdigest())
