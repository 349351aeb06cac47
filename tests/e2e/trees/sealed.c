/* Makes half of its memory read-only and seals it, then goes through the other half. */
#define _GNU_SOURCE
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

enum { MSEAL = 462 };
static const long BYTES = 64L << 20;

/* Pages of noise: nothing packs them. */
static unsigned long fill(unsigned long *words)
{
    unsigned long state = 1;
    for (long at = 0; at < BYTES / 8; at++) {
        state ^= state << 13, state ^= state >> 7, state ^= state << 17;
        words[at] = state;
    }
    return state;
}

int main(void)
{
    char *sealed = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    char *other = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    unsigned long last = fill((unsigned long *)sealed);
    if (mprotect(sealed, BYTES, PROT_READ) != 0)
        return 2;
    puts(syscall(MSEAL, sealed, BYTES, 0L) == 0 ? "sealed" : "not sealed");
    for (int lap = 0; lap < 3; lap++) {
        fill((unsigned long *)other);
        for (long at = 0; at < BYTES; at += 8)
            if (*(unsigned long *)(sealed + at) != *(unsigned long *)(other + at))
                return 3;
    }
    return *(unsigned long *)(sealed + BYTES - 8) == last ? 0 : 4;
}
