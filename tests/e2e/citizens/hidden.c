/* Gives up root, forbids others to look into it, and then needs more memory than its budget. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>

static const long BYTES = 96L << 20, PAGE = 4096;

int main(void)
{
    if (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) != 0)
        return 2;
    char *memory = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (long at = 0; at < BYTES; at += PAGE)
        *(long *)(memory + at) = at + 1;
    for (long at = 0; at < BYTES; at += PAGE)
        if (*(long *)(memory + at) != at + 1)
            return 3;
    return 0;
}
