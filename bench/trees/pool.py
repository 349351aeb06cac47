# Four workers read a list that their parent made: each look at a number writes to it, as it counts references.
import multiprocessing
import sys

NUMBERS = [float(number) for number in range(int(sys.argv[1]))]


def total(part):
    return sum(NUMBERS[part::64])


if __name__ == "__main__":
    multiprocessing.set_start_method("fork")
    with multiprocessing.Pool(4) as pool:
        print(sum(pool.map(total, range(64))))
