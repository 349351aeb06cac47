/* Becomes itself with no environment at all, by a system call that libc's own functions do not make, and needs memory then. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

static const long BYTES = 64L << 20, PAGE = 4096;

static int need_memory(void)
{
    char *memory = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (long at = 0; at < BYTES; at += PAGE)
        *(long *)(memory + at) = at + 1;
    for (long at = 0; at < BYTES; at += PAGE)
        if (*(long *)(memory + at) != at + 1)
            return 3;
    return 0;
}

int main(int count, char **words)
{
    char *next[] = { words[0], NULL }, *none[] = { NULL };
    if (count < 2)
        return getenv("HOME") ? 4 : need_memory();
    if (strcmp(words[1], "execve") == 0)
        syscall(SYS_execve, words[0], next, none);
    else if (strcmp(words[1], "execveat") == 0)
        syscall(SYS_execveat, AT_FDCWD, words[0], next, none, 0);
    else
        fexecve(open(words[0], O_RDONLY | O_CLOEXEC), next, none);
    return 2;
}
