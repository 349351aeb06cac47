/* Fills memory, then makes a user namespace of its own, which only a process with one thread may, and checks the memory. */
#define _GNU_SOURCE
#include <dirent.h>
#include <sched.h>
#include <stdio.h>
#include <sys/mman.h>

enum { PAGE = 4096 };
static const long BYTES = 96L << 20;

int main(void) {
    char *memory = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (long at = 0; at < BYTES; at += PAGE) *(long *)(memory + at) = at + 1;
    if (unshare(CLONE_NEWUSER) != 0) {
        perror("unshare");
        return 2;
    }
    long wrong = 0;
    for (long at = 0; at < BYTES; at += PAGE) wrong += *(long *)(memory + at) != at + 1;
    printf("%ld pages are wrong\n", wrong);
    return wrong != 0;
}
