# Workers read a list that their parent made: each look at a number writes to it, as it counts references.
import multiprocessing
import sys

NUMBERS = [float(number) for number in range(int(sys.argv[1]))]


def total(first):
    return sum(sum(NUMBERS[first::4]) for _ in range(2))


if __name__ == "__main__":
    multiprocessing.set_start_method("fork")
    with multiprocessing.Pool(4) as pool:
        found = sum(pool.map(total, range(4)))
    expected = 2 * sum(range(len(NUMBERS)))
    sys.exit(0 if found == expected else f"{found} is not {expected}")
