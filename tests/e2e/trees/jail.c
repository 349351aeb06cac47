// jail ROOT USER MIB: goes into another root (unless it is empty) and becomes another user (unless 0), as a
// daemon does, and has a child of fork fill and check so much memory, twice.
#define _GNU_SOURCE
#include <grp.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static uint64_t word(size_t place, uint64_t round) {
    return (place + 1) * 0x9e3779b97f4a7c15u ^ round << 32;
}

static int work(size_t bytes) {
    size_t words = bytes / sizeof(uint64_t);
    uint64_t *memory = mmap(0, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return 2;
    for (uint64_t round = 0; round < 2; round++) {
        for (size_t place = 0; place < words; place++)
            memory[place] = word(place, round);
        for (size_t place = 0; place < words; place++)
            if (memory[place] != word(place, round))
                return 3;
    }
    return 0;
}

int main(int argc, char **argv) {
    if (argc != 4)
        return 90;
    uid_t user = atoi(argv[2]);
    if (*argv[1] && (chroot(argv[1]) || chdir("/")))
        return 91;
    if (user && (setgroups(0, 0) || setgid(user) || setuid(user)))
        return 92;
    pid_t child = fork();
    if (child == 0)
        _exit(work((size_t)atoi(argv[3]) << 20));
    int status;
    if (child < 0 || waitpid(child, &status, 0) != child)
        return 93;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 94;
}
