/* One mapping of 160 MiB, split by a page without permissions in front of so many KiB each; filled, a MiB in
 * two milliseconds, and read back. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static unsigned char byte_of(size_t at) { return (unsigned char)(at / 4096 * 2654435761u >> 24) | 1; }

int main(int count, char **words) {
    if (count < 2) return 2;
    size_t piece = strtoul(words[1], 0, 10) << 10, len = 160ul << 20;
    unsigned char *memory = mmap(0, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return 2;
    for (size_t at = 0; at < len; at += piece)
        if (mprotect(memory + at, 4096, PROT_NONE)) return 2;
    for (size_t at = 0; at < len; at += 4096) {
        if (at % piece) memset(memory + at, byte_of(at), 4096);
        if (at % (1 << 20) == 0) usleep(2000);
    }
    for (size_t at = 0; at < len; at += 4096)
        if (at % piece && (memory[at] != byte_of(at) || memory[at + 4095] != byte_of(at))) return 1;
    puts("right");
    return 0;
}
