/* Fills memory, then counts its own threads in every way that asks by the name of the directory: there must be one, and
   afterwards memory must be right. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* The names that programs had before glibc 2.33; libc has them still. */
int old_stat(int, const char *, struct stat *) __asm__("__xstat");
int old_stat64(int, const char *, struct stat *) __asm__("__xstat64");
int old_lstat(int, const char *, struct stat *) __asm__("__lxstat");
int old_fstatat(int, int, const char *, struct stat *, int) __asm__("__fxstatat");
int old_fstatat64(int, int, const char *, struct stat *, int) __asm__("__fxstatat64");

static const long WORDS = (48L << 20) / sizeof(long);
static int failures;

static void expect(const char *way, int failed, unsigned long links)
{
    if (failed || links != 3) {
        fprintf(stderr, "%s: %d, %lu links\n", way, failed, links);
        failures++;
    }
}

static void look(const char *path, int proc, const char *below)
{
    struct stat status;
    struct statx more;
    int failed;
#define WITH_STATUS(call) failed = call, expect(#call, failed, status.st_nlink)
#define WITH_MORE(call) failed = call, expect(#call, failed, more.stx_nlink)
    WITH_STATUS(stat(path, &status));
    WITH_STATUS(lstat(path, &status));
    WITH_STATUS(fstatat(proc, below, &status, 0));
    WITH_STATUS(old_stat(1, path, &status));
    WITH_STATUS(old_stat64(1, path, &status));
    WITH_STATUS(old_lstat(1, path, &status));
    WITH_STATUS(old_fstatat(1, proc, below, &status, 0));
    WITH_STATUS(old_fstatat64(1, proc, below, &status, 0));
    WITH_STATUS(syscall(SYS_stat, path, &status));
    WITH_STATUS(syscall(SYS_newfstatat, proc, below, &status, 0));
    WITH_MORE(statx(proc, below, 0, STATX_NLINK, &more));
    WITH_MORE(syscall(SYS_statx, proc, below, 0, STATX_NLINK, &more));
}

int main(void)
{
    char path[64], below[32];
    long *words = malloc(WORDS * sizeof(long));
    for (long at = 0; at < WORDS; at++)
        words[at] = at * 7 + 1;
    int proc = open("/proc", O_RDONLY | O_DIRECTORY);
    look("/proc/self/task", proc, "self/task/");
    snprintf(path, sizeof path, "/proc/%d/task", getpid());
    snprintf(below, sizeof below, "%d/task", getpid());
    look(path, proc, below);
    struct stat status;
    if (stat("/", &status) != 0 || old_stat(1, "/proc/1/task", &status) != 0 || old_stat(7, "/", &status) == 0)
        failures++;
    for (long at = 0; at < WORDS; at++)
        if (words[at] != at * 7 + 1)
            return 3;
    return failures ? 2 : 0;
}
