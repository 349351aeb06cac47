// many COPIES AT_A_TIME MIB MS: forks so many copies, so many at a time. Each fills so many MiB of its own
// with noise, stays for so many milliseconds, and finds what it has stored.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static uint64_t noise(uint64_t *state) {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

static int copy(size_t mib, useconds_t milliseconds) {
    size_t words = (mib << 20) / sizeof(uint64_t);
    uint64_t first = (uint64_t)getpid() << 32 | 1, state = first;
    uint64_t *memory =
        mmap(NULL, mib << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return 1;
    for (size_t word = 0; word < words; word++)
        memory[word] = noise(&state);
    usleep(milliseconds * 1000);
    state = first;
    for (size_t word = 0; word < words; word++)
        if (memory[word] != noise(&state))
            return 1;
    return 0;
}

int main(int argc, char **argv) {
    if (argc != 5)
        return 2;
    int copies = atoi(argv[1]), at_a_time = atoi(argv[2]);
    int failed = 0, status;
    for (int made = 0; made < copies; made++) {
        if (made >= at_a_time && wait(&status) > 0)
            failed |= status;
        pid_t child = fork();
        if (child < 0) {
            perror("fork");
            return 1;
        }
        if (child == 0)
            _exit(copy(atoi(argv[3]), atoi(argv[4])));
    }
    while (wait(&status) > 0)
        failed |= status;
    return failed != 0;
}
