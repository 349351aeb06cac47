/* With a limit of so many MiB on its addresses (or what LIMIT is), unless that is 0: fills 96 MiB in
   pieces, reads them back, takes so many percent of its limit in addresses alone, and tells its limit in
   MiB and what the kernel has in bytes. limited MIB [PERCENT] */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>

#ifndef LIMIT
#define LIMIT RLIMIT_AS
#define SHOWN "Max address space"
#endif

enum { PIECES = 12, PIECE = 8 << 20 };

static unsigned word(unsigned piece, unsigned at) { return (at * 2654435761u) ^ (piece * 40503u); }

int main(int count, char **words) {
    struct rlimit limit = {0, 0};
    char line[256], kernel[64] = "";
    unsigned *memory[PIECES];
    if (count < 2)
        return 2;
    limit.rlim_cur = limit.rlim_max = (rlim_t)atoi(words[1]) << 20;
    if (limit.rlim_cur && setrlimit(LIMIT, &limit))
        return 3;
    if (setrlimit(LIMIT, (const struct rlimit *)16) != -1 || errno != EFAULT)
        return 6;
    for (unsigned piece = 0; piece < PIECES; piece++) {
        memory[piece] = mmap(0, PIECE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (memory[piece] == MAP_FAILED)
            return 4;
        for (unsigned at = 0; at < PIECE / sizeof(unsigned); at++)
            memory[piece][at] = word(piece, at);
    }
    for (unsigned piece = 0; piece < PIECES; piece++)
        for (unsigned at = 0; at < PIECE / sizeof(unsigned); at++)
            if (memory[piece][at] != word(piece, at))
                return 5;
    getrlimit(LIMIT, &limit);
    if (count > 2) {
        size_t share = limit.rlim_cur / 100 * (rlim_t)atoi(words[2]) & -4096UL;
        if (mmap(0, share, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0) == MAP_FAILED)
            return 7;
    }
    FILE *limits = fopen("/proc/self/limits", "r");
    while (limits && fgets(line, sizeof line, limits))
        sscanf(line, SHOWN " %63s", kernel);
    printf("%lu %s\n", (unsigned long)limit.rlim_cur >> 20, kernel);
    return 0;
}
