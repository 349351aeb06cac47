/* Locks so many MiB and holds them until it is ended, for 20 s where they are more than 100.
   locked mlock|mlockall|onfault MIB */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int main(int count, char **words) {
    if (count < 3)
        return 2;
    size_t mib = atoi(words[2]), bytes = mib << 20;
    if (!strcmp(words[1], "mlockall") && mlockall(MCL_CURRENT | MCL_FUTURE))
        return 4;
    char *memory = mmap(0, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return 3;
    if (!strcmp(words[1], "mlock") && mlock(memory, bytes))
        return 4;
    if (!strcmp(words[1], "onfault") && mlock2(memory, bytes, MLOCK_ONFAULT))
        return 4;
    memset(memory, 1, bytes);
    sleep(mib > 100 ? 20 : 1);
    return 0;
}
