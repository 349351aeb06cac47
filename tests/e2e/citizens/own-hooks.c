// A program with functions of its own in place of libc's, which go by libc's `syscall`.
#define _GNU_SOURCE
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MIB = 1 << 20, PAGE = 4096 };
static int calls;

void *mmap(void *at, size_t len, int rights, int flags, int fd, off_t offset) {
    calls++;
    return (void *)syscall(SYS_mmap, at, len, rights, flags, fd, offset);
}

int munmap(void *at, size_t len) {
    calls++;
    return syscall(SYS_munmap, at, len);
}

int madvise(void *at, size_t len, int advice) {
    calls++;
    return syscall(SYS_madvise, at, len, advice);
}

int mprotect(void *at, size_t len, int rights) {
    calls++;
    return syscall(SYS_mprotect, at, len, rights);
}

void *mremap(void *at, size_t len, size_t wanted, int flags, ...) {
    va_list more;
    va_start(more, flags);
    void *to = va_arg(more, void *);
    va_end(more);
    calls++;
    return (void *)syscall(SYS_mremap, at, len, wanted, flags, to);
}

int execve(const char *path, char *const words[], char *const environment[]) {
    return syscall(SYS_execve, path, words, environment);
}

static int differ(const unsigned char *memory, size_t from, size_t len) {
    for (size_t at = from; at < len; at += PAGE) {
        unsigned long word;
        memcpy(&word, memory + at, sizeof word);
        if (word != at * 0x9e3779b97f4a7c15u) return 1;
    }
    return 0;
}

int main(int count, char **words) {
    if (count > 1) return 0;
    size_t len = 96 * (size_t)MIB;
    unsigned char *memory = mmap(0, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (size_t at = 0; at < len; at += PAGE) {
        unsigned long word = at * 0x9e3779b97f4a7c15u;
        for (size_t part = 0; part < PAGE; part += sizeof word, word = word * 6364136223846793005u + 1)
            memcpy(memory + at + part, &word, sizeof word);
    }
    memory = mremap(memory, len, len + MIB, MREMAP_MAYMOVE);
    if (memory == MAP_FAILED || differ(memory, 0, len)) return 3;
    if (madvise(memory, MIB, MADV_DONTNEED) || memory[5] || differ(memory, MIB, len)) return 4;
    if (mprotect(memory, MIB, PROT_READ) || munmap(memory + len, MIB)) return 5;
    pid_t child = fork();
    if (!child) _exit(differ(memory, MIB, len));
    int status;
    if (waitpid(child, &status, 0) != child || status) return 6;
    if (calls < 5) return 7;
    char *end[] = {words[0], "end", 0}, *environment[] = {"A=b", 0};
    execve("/proc/self/exe", end, environment);
    return 8;
}
