/* Fills memory, sleeps, looks at it again. idler MIB SECONDS */
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

int main(int count, char **words) {
    if (count < 3)
        return 2;
    size_t bytes = (size_t)atoi(words[1]) << 20;
    unsigned char *memory = mmap(0, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return 3;
    for (size_t at = 0; at < bytes; at += 64)
        memory[at] = (unsigned char)(at * 31 >> 6);
    sleep((unsigned)atoi(words[2]));
    for (size_t at = 0; at < bytes; at += 64)
        if (memory[at] != (unsigned char)(at * 31 >> 6))
            return 1;
    return 0;
}
