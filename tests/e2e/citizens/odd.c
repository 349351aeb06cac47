// Calls that programs make once in a life, each answered as the kernel answers it; a line that says what was not.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static int fails(const char *what, long result, int expected) {
    if (result == -1 && errno == expected) return 0;
    printf("%s: %ld, errno %d, not %d\n", what, result, errno, expected);
    return 1;
}

// 64 MiB of memory, each page different.
static unsigned char *fill(size_t bytes) {
    unsigned char *memory = mmap(0, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) exit(3);
    unsigned long word = 1;
    for (size_t at = 0; at < bytes; at += sizeof word) {
        word = word * 6364136223846793005u + 1442695040888963407u;
        *(unsigned long *)(memory + at) = word;
    }
    return memory;
}

static int environments(void) {
    char *words[] = {"true", 0};
    char *bad_entry[] = {(char *)8, 0};
    char *closed = mmap(0, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    // A string that goes on into what may not be read.
    memset(closed, 'a', 4096);
    mprotect(closed + 4096, 4096, PROT_NONE);
    char *long_entry[] = {closed, 0};
    char **bad[] = {(char **)8, bad_entry, long_entry, (char **)(closed + 4096)};
    int wrong = 0;
    for (int index = 0; index < 4; index++) {
        errno = 0;
        wrong |= fails("execve", execve("/bin/true", words, bad[index]), EFAULT);
        errno = 0;
        wrong |= fails("bare execve", syscall(SYS_execve, "/bin/true", words, bad[index]), EFAULT);
    }
    errno = 0;
    wrong |= fails("getrlimit", syscall(SYS_getrlimit, RLIMIT_AS, 0), EFAULT);
    errno = 0;
    wrong |= fails("setrlimit", syscall(SYS_setrlimit, RLIMIT_DATA, 0), EFAULT);
    return wrong;
}

static int lengths(const char *path) {
    int file = open(path, O_RDONLY), wrong = 0;
    if (file < 0) return 3;
    size_t lengths[] = {SIZE_MAX, SIZE_MAX - 1, SIZE_MAX - 4094};
    for (int index = 0; index < 3; index++) {
        errno = 0;
        void *there = mmap(0, lengths[index], PROT_READ, MAP_SHARED, file, 0);
        wrong |= fails("mmap", (long)there, ENOMEM);
    }
    return wrong;
}

static int counter(void) {
    if (prctl(PR_SET_TSC, PR_TSC_SIGSEGV)) return 3;
    unsigned char *memory = fill(64 << 20);
    pid_t child = fork();
    if (child == 0) {
        unsigned char *more = fill(48 << 20);
        for (size_t at = 0; at < 48 << 20; at += 4096)
            if (more[at] != memory[at]) _exit(4);
        _exit(0);
    }
    int status = -1;
    if (waitpid(child, &status, 0) != child || status) {
        printf("the child ended with %x\n", status);
        return 1;
    }
    return 0;
}

int main(int count, char **words) {
    if (count < 2) return 2;
    if (!strcmp(words[1], "environments")) return environments();
    if (!strcmp(words[1], "lengths")) return lengths(words[2]);
    return counter();
}
