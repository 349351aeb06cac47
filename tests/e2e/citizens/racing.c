/* A thread forks without pause, while the other looks at its threads, for each of which the agent goes,
   and comes back. No fork is refused. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define BYTES (20L << 20)

static volatile int is_over;

static void *fork_always(void *forks)
{
    while (!is_over) {
        pid_t child = fork();
        if (child == 0)
            _exit(0);
        if (child < 0) {
            perror("fork");
            _exit(2);
        }
        waitpid(child, NULL, 0);
        ++*(long *)forks;
    }
    return NULL;
}

int main(int count, char **words)
{
    long forks = 0;
    pthread_t thread;
    struct stat threads;
    char *memory = malloc(BYTES);
    memset(memory, 1, BYTES);
    pthread_create(&thread, NULL, fork_always, &forks);
    for (int round = atoi(words[count - 1]); round > 0; round--) {
        if (stat("/proc/self/task", &threads) != 0)
            return 1;
        usleep(2000);
    }
    is_over = 1;
    pthread_join(thread, NULL);
    fprintf(stderr, "%ld forks\n", forks);
    return 0;
}
