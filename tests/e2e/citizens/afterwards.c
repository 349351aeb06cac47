/* What is to go on after the agent had something to say, or is gone.
   "managed": needs more than budget and swap together, which is said; gives that back, and looks at its threads, for which the
   agent goes and comes back. What it needs then is paged. "locked": makes a process that shares its memory, for which the agent
   goes for good, and locks all it has. */
#define _GNU_SOURCE
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PAGE = 4096, KIB = 1024 };
static const long NOISE = 64L << 20, BYTES = 96L << 20, FEW = 48L << 20, LOCKED = 8L << 20;

static char *map(long bytes)
{
    char *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        exit(2);
    return memory;
}

/* A line of /proc/self/status that ends in kB. */
static long status(const char *name)
{
    char line[256];
    long found = -1;
    FILE *file = fopen("/proc/self/status", "r");
    while (file && fgets(line, sizeof line, file))
        if (strncmp(line, name, strlen(name)) == 0)
            found = atol(line + strlen(name)) * KIB;
    fclose(file);
    return found;
}

/* Pages of noise: nothing packs them. */
static void fill_swap(void)
{
    char *memory = map(NOISE);
    unsigned long state = 1;
    for (long at = 0; at < NOISE; at += 8) {
        state ^= state << 13, state ^= state >> 7, state ^= state << 17;
        *(unsigned long *)(memory + at) = state;
    }
    usleep(100000);
    munmap(memory, NOISE);
}

static int is_managed(void)
{
    struct stat threads;
    fill_swap();
    if (stat("/proc/self/task", &threads) != 0)
        return 3;
    volatile char *memory = map(BYTES);
    for (long at = 0; at < BYTES; at += PAGE)
        memory[at] = 0;
    for (int looks = 0; looks < 2000; looks++) {
        if (status("RssAnon:") < FEW)
            return 0;
        usleep(10000);
    }
    fprintf(stderr, "%ld MiB are resident\n", status("RssAnon:") >> 20);
    return 4;
}

static int end(void *unused)
{
    (void)unused;
    _exit(0);
}

static int is_locked(void)
{
    static char stack[64 * KIB] __attribute__((aligned(16)));
    memset(map(LOCKED), 1, LOCKED);
    int child = clone(end, stack + sizeof stack, CLONE_VM | SIGCHLD, NULL), told;
    if (child < 0 || waitpid(child, &told, 0) != child || told != 0)
        return 5;
    if (mlockall(MCL_CURRENT) != 0)
        return 6;
    fprintf(stderr, "%ld KiB are locked\n", status("VmLck:") / KIB);
    return status("VmLck:") >= LOCKED ? 0 : 7;
}

int main(int count, char **words)
{
    return count > 1 && strcmp(words[1], "locked") == 0 ? is_locked() : is_managed();
}
