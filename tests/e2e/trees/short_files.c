/* Lowers the limit on the length of its files to so many KiB while it holds 64 MiB, changes and reads
   them twice, and tells how its own file fares at the limit. short_files KIB */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

enum { WORDS = (64 << 20) / sizeof(unsigned) };

static volatile sig_atomic_t told;

static void tell(int signal) { (void)signal, told++; }

static unsigned word(unsigned lap, unsigned at) { return (at * 2654435761u) ^ (lap * 40503u); }

int main(int count, char **words) {
    struct rlimit limit = {0, 0};
    unsigned *memory =
        mmap(0, WORDS * sizeof(unsigned), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    char page[1024] = {1};
    if (count < 2 || memory == MAP_FAILED)
        return 2;
    signal(SIGXFSZ, tell);
    for (unsigned at = 0; at < WORDS; at++)
        memory[at] = word(0, at);
    limit.rlim_cur = (rlim_t)atoi(words[1]) << 10;
    limit.rlim_max = RLIM_INFINITY;
    if (setrlimit(RLIMIT_FSIZE, &limit))
        return 3;
    for (unsigned lap = 0; lap < 2; lap++)
        for (unsigned at = 0; at < WORDS; at++) {
            if (memory[at] != word(lap, at))
                return 4;
            memory[at] = word(lap + 1, at);
        }
    if (told)
        return 5;
    FILE *file = tmpfile();
    if (!file)
        return 6;
    unsigned long length = 0;
    while (write(fileno(file), page, sizeof page) == sizeof page)
        length += sizeof page;
    printf("%lu %d %d\n", length >> 10, errno == EFBIG, (int)told);
    return 0;
}
