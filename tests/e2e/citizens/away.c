/* Looks at the own threads, for which the agent goes and comes back, while a handler of signals forks: parent and children
   go on where they were, and find their memory. With "mappings" nobody forks, and the shared page is mapped once. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ROUNDS = 12, AT_A_TIME = 1 };
static const long WORDS = (48L << 20) / sizeof(long);

static volatile int is_child, children;

static void fork_now(int signal)
{
    (void)signal;
    if (is_child || children >= AT_A_TIME)
        return;
    pid_t child = fork();
    if (child == 0)
        is_child = 1;
    else if (child > 0)
        children++;
}

static int mappings(void)
{
    FILE *maps = fopen("/proc/self/maps", "r");
    char line[4096];
    int count = 0;
    while (maps && fgets(line, sizeof line, maps))
        count += strstr(line, "memfd:overspill") != NULL;
    fclose(maps);
    return count;
}

static int is_right(const long *words)
{
    for (long at = 0; at < WORDS; at++)
        if (words[at] != at * 7 + 1)
            return 0;
    return 1;
}

static void forks(int microseconds)
{
    struct itimerval every = { { 0, microseconds }, { 0, microseconds } };
    setitimer(ITIMER_REAL, &every, NULL);
}

/* Children count in full, each of them: many at a time would page all the while. */
static int await_children(void)
{
    for (int status; children > 0; children--)
        if (wait(&status) < 0 || status != 0) {
            fprintf(stderr, "a child's status is %#x\n", status);
            return 0;
        }
    return 1;
}

int main(int count, char **words_given)
{
    int only_counts = count > 1 && strcmp(words_given[1], "mappings") == 0;
    long *words = malloc(WORDS * sizeof(long));
    for (long at = 0; at < WORDS; at++)
        words[at] = at * 7 + 1;
    struct sigaction action = { .sa_handler = fork_now, .sa_flags = SA_RESTART };
    sigaction(SIGALRM, &action, NULL);
    usleep(50000); /* the agent manages it by now */
    int before = mappings();
    for (int round = 0; round < ROUNDS && !is_child; round++) {
        if (!only_counts)
            forks(3000 + 1700 * round);
        /* A child that is made in here goes on from here. */
        struct stat threads;
        int failed = stat("/proc/self/task", &threads);
        forks(0);
        if (failed || threads.st_nlink != 3)
            _exit(2);
        if (!is_child && !await_children())
            return 4;
        if (!is_child)
            usleep(20000);
    }
    if (is_child)
        _exit(is_right(words) ? 0 : 3);
    if (mappings() != before) {
        fprintf(stderr, "%d mappings of the shared page, before %d\n", mappings(), before);
        return 5;
    }
    return is_right(words) ? 0 : 6;
}
