/* A signal's handler forks in a child of fork before anybody else's handlers of fork run there: a handler of the program's own,
   which is registered before all libraries' constructors, raises it. Its child goes on where it was made, and forks in turn. */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static const long WORDS = (48L << 20) / sizeof(long);
static volatile int is_armed, nested = -1;

static void fork_now(int signal)
{
    (void)signal;
    nested = fork();
}

static void in_child(void)
{
    if (is_armed) {
        is_armed = 0;
        raise(SIGUSR1);
    }
}

static void first_of_all(void)
{
    pthread_atfork(NULL, NULL, in_child);
}

__attribute__((section(".preinit_array"), used)) static void (*const FIRST)(void) = first_of_all;

static int is_right(const long *words)
{
    for (long at = 0; at < WORDS; at++)
        if (words[at] != at * 7 + 1)
            return 0;
    return 1;
}

static int succeeds(pid_t child)
{
    int status;
    return child > 0 && waitpid(child, &status, 0) == child && status == 0;
}

/* One more child, by a process that was itself made so. */
static int goes_on(const long *words)
{
    usleep(50000); /* its agent manages it by now */
    pid_t child = fork();
    if (child == 0)
        _exit(is_right(words) ? 0 : 2);
    return succeeds(child) && is_right(words);
}

int main(void)
{
    long *words = malloc(WORDS * sizeof(long));
    for (long at = 0; at < WORDS; at++)
        words[at] = at * 7 + 1;
    signal(SIGUSR1, fork_now);
    alarm(60);
    is_armed = 1;
    pid_t child = fork();
    alarm(60);
    if (child > 0)
        return succeeds(child) && is_right(words) ? 0 : 3;
    if (nested < 0)
        _exit(4);
    if (nested > 0)
        _exit(succeeds(nested) && is_right(words) ? 0 : 5);
    _exit(goes_on(words) ? 0 : 6);
}
