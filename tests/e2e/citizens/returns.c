/* Memory that fits, a look at the own threads (for which the agent goes, and comes back), and a fork; three times. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define WORDS (48L << 20) / sizeof(long)

static int is_right(const long *words)
{
    for (long at = 0; at < WORDS; at++)
        if (words[at] != at * 7 + 1)
            return 0;
    return 1;
}

int main(void)
{
    long *words = malloc(WORDS * sizeof(long));
    for (long at = 0; at < WORDS; at++)
        words[at] = at * 7 + 1;
    for (int round = 0; round < 3; round++) {
        struct stat threads;
        usleep(50000); /* the agent manages it by now */
        if (stat("/proc/self/task", &threads) != 0)
            return 1;
        usleep(50000);
        pid_t child = fork();
        if (child < 0) {
            perror("fork");
            return 2;
        }
        if (child == 0)
            _exit(is_right(words) ? 0 : 3);
        int status;
        if (waitpid(child, &status, 0) != child || status != 0) {
            fprintf(stderr, "round %d: the child's status is %#x\n", round, status);
            return 4;
        }
    }
    return is_right(words) ? 0 : 5;
}
