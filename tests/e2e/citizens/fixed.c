/* Locked memory, more than the budget, and a little beside it that is in use all the time. */
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

enum { PAGE = 4096 };
static const long FIXED = 66L << 20, USED = 2L << 20;

static char *filled(long bytes) {
    char *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (long at = 0; at < bytes; at += PAGE) *(long *)(memory + at) = at + 1;
    return memory;
}

int main(void) {
    if (mlock(filled(FIXED), FIXED)) return 2;
    char *used = filled(USED);
    unsigned long random = 1;
    long wrong = 0;
    for (long touch = 0; touch < 50 * USED / PAGE; touch++) {
        random = random * 6364136223846793005UL + 1442695040888963407UL;
        long at = (random >> 33) % (USED / PAGE) * PAGE;
        wrong += *(long *)(used + at) != at + 1;
    }
    usleep(300000); /* so that it can be seen what is locked */
    printf("%ld pages are wrong\n", wrong);
    return wrong != 0;
}
