/* Holds so many MiB in pages of hugetlbfs for half a second. huge MIB */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int main(int count, char **words) {
    if (count < 2)
        return 2;
    size_t bytes = (size_t)atoi(words[1]) << 20;
    void *memory =
        mmap(0, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB, -1, 0);
    if (memory == MAP_FAILED)
        return 3;
    memset(memory, 1, bytes);
    usleep(500000);
    return 0;
}
