# Four workers read a list that their parent made: each look at a number counts a reference to it.
import multiprocessing
import sys

NUMBERS = [float(number) for number in range(int(sys.argv[1]))]
PARTS = 64


def total(part):
    first, end = (len(NUMBERS) * index // PARTS for index in (part, part + 1))
    return sum(NUMBERS[first:end])


if __name__ == "__main__":
    multiprocessing.set_start_method("fork")
    with multiprocessing.Pool(4) as pool:
        print(sum(pool.map(total, range(PARTS), chunksize=1)))
