/* Fills so many MiB of shared memory, and goes three times through so many of its own, with what cannot be
   compressed.
   beside SHARED OWN */
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

static uint64_t state = 9;

static void fill(uint64_t *words, size_t bytes) {
    for (size_t at = 0; at < bytes / sizeof *words; at++) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        words[at] = state;
    }
}

int main(int count, char **words) {
    if (count < 3)
        return 2;
    size_t shared_bytes = (size_t)atoi(words[1]) << 20, own_bytes = (size_t)atoi(words[2]) << 20;
    int access = PROT_READ | PROT_WRITE;
    void *shared = mmap(0, shared_bytes, access, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    void *own = mmap(0, own_bytes, access, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED || own == MAP_FAILED)
        return 3;
    fill(shared, shared_bytes);
    for (int round = 0; round < 3; round++)
        fill(own, own_bytes);
    usleep(200000);
    return 0;
}
