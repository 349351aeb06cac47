/* Becomes itself with no environment at all, by a system call that libc's own functions do not make, and needs memory then.
   "small": with many entries, in a thread with the smallest stack. "variable": by what libc's variable has, which is the
   program's own; no memory is needed then. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
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

enum { ENTRIES = 80 };

/* The caller's entries are libc's: the thread has no room for them. */
static void *in_small_thread(void *path)
{
    static char *next[] = { NULL, NULL }, *entries[ENTRIES + 1];
    next[0] = path;
    for (int at = 0; at < ENTRIES; at++)
        entries[at] = "A=1";
    execve(path, next, entries);
    return NULL;
}

static void in_small(char *path)
{
    pthread_attr_t small;
    pthread_t thread;
    pthread_attr_init(&small);
    if (pthread_attr_setstacksize(&small, PTHREAD_STACK_MIN) == 0 && pthread_create(&thread, &small, in_small_thread, path) == 0)
        pthread_join(thread, NULL);
}

/* Named here, so that the linker makes it the program's own. */
static void by_variable(char *path)
{
    char *next[] = { path, "there", NULL };
    if (environ && setenv("OWN", "1", 1) == 0)
        execv(path, next);
}

int main(int count, char **words)
{
    char *next[] = { words[0], NULL }, *none[] = { NULL };
    if (count < 2)
        return getenv("HOME") ? 4 : need_memory();
    if (strcmp(words[1], "there") == 0)
        return getenv("OWN") && getenv("HOME") ? 0 : 5;
    if (strcmp(words[1], "small") == 0)
        in_small(words[0]);
    else if (strcmp(words[1], "variable") == 0)
        by_variable(words[0]);
    else if (strcmp(words[1], "execve") == 0)
        syscall(SYS_execve, words[0], next, none);
    else if (strcmp(words[1], "execveat") == 0)
        syscall(SYS_execveat, AT_FDCWD, words[0], next, none, 0);
    else
        fexecve(open(words[0], O_RDONLY | O_CLOEXEC), next, none);
    return 2;
}
