/* Fills memory with noise, then touches the first part of it at random for good. Each half second it
 * prints the time since the end of the fill and the touches a second.
 *
 * usage: settle MIB HOT-MIB SECONDS */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + time.tv_nsec * 1e-9;
}

static uint64_t state = 88172645463325252ull;

static uint64_t next(void)
{
    state ^= state << 13;
    state ^= state >> 7;
    return state ^= state << 17;
}

int main(int count, char **words)
{
    if (count != 4) {
        fputs("usage: settle MIB HOT-MIB SECONDS\n", stderr);
        return 2;
    }
    size_t pages = strtoul(words[1], 0, 10) << 8, hot = strtoul(words[2], 0, 10) << 8;
    double seconds = strtod(words[3], 0);
    uint64_t *memory = mmap(0, pages << 12, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED || hot == 0 || hot > pages)
        return 1;
    for (size_t word = 0; word < pages * 512; word++)
        memory[word] = next();
    double begun = now(), last = begun, time = begun;
    uint64_t touches = 0, before = 0, sum = 0;
    while (time - begun < seconds) {
        for (int turn = 0; turn < 256; turn++) {
            uint64_t number = next();
            sum += memory[number % hot * 512 + (number >> 40) % 512];
        }
        touches += 256;
        time = now();
        if (time - last >= 0.5) {
            printf("%.1f %.0f\n", time - begun, (touches - before) / (time - last));
            last = time;
            before = touches;
        }
    }
    printf("all %.0f\n", touches / (time - begun));
    return sum == 1;
}
