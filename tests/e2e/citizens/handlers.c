/* A handler of signals forks, again and again, while its thread makes calls for which the agent and the program's threads
   share something. Neither the parent nor a child, which goes on where it was made, may wait for ever.
   handlers WHAT [FILE]: lock (mlockall), mark (MADV_DONTFORK), fork, map (a mapping of a file, given back by mlock). */
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { PAGE = 4096, MARKED = 64 * PAGE };
static const long BYTES = 24L << 20, FILE_BYTES = 8L << 20;
static volatile int is_child, children;

static void fork_now(int signal)
{
    (void)signal;
    if (is_child || children >= 3)
        return;
    pid_t child = fork();
    if (child == 0)
        is_child = 1;
    else if (child > 0)
        children++;
}

static void step(const char *what, char *marked, int file)
{
    if (strcmp(what, "lock") == 0) {
        mlockall(MCL_CURRENT | MCL_ONFAULT);
        munlockall();
    } else if (strcmp(what, "mark") == 0) {
        for (int at = 0; at < 200; at++) {
            madvise(marked, MARKED, MADV_DONTFORK);
            madvise(marked, MARKED, MADV_DOFORK);
        }
    } else if (strcmp(what, "fork") == 0) {
        pid_t child = fork();
        if (child == 0)
            _exit(0);
        while (child > 0 && waitpid(child, NULL, 0) < 0 && !is_child)
            ;
    } else {
        char *mapped = mmap(NULL, FILE_BYTES, PROT_READ, MAP_PRIVATE, file, 0);
        if (mapped == MAP_FAILED || mapped[FILE_BYTES - 1] != 'x')
            _exit(4);
        mlock(mapped, PAGE);
        munmap(mapped, FILE_BYTES);
    }
}

/* Of what is to be there for the forks of "fork": a mapped file. */
static int made_file(const char *path)
{
    int file = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
    char block[PAGE];
    memset(block, 'x', PAGE);
    for (long at = 0; at < FILE_BYTES; at += PAGE)
        if (write(file, block, PAGE) != PAGE)
            exit(5);
    fsync(file);
    close(file);
    return open(path, O_RDONLY);
}

static long now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

int main(int count, char **words)
{
    const char *what = count > 1 ? words[1] : "lock";
    int file = count > 2 ? made_file(words[2]) : -1;
    char *memory = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (long at = 0; at < BYTES; at += PAGE)
        memory[at] = 1;
    char *marked = mmap(NULL, MARKED, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    volatile char *mapped = file < 0 ? memory : mmap(NULL, FILE_BYTES, PROT_READ, MAP_PRIVATE, file, 0);
    usleep(50000);
    struct sigaction action = { .sa_handler = fork_now, .sa_flags = SA_RESTART };
    sigaction(SIGALRM, &action, NULL);
    long end = now_ms() + 2500, steps = 0;
    for (; now_ms() < end && !is_child; steps++) {
        struct itimerval once = { { 0, 0 }, { 0, 1 + steps * 37 % 1500 } };
        setitimer(ITIMER_REAL, &once, NULL);
        step(what, marked, file);
        if (is_child)
            break;
        for (int status; children > 0 && !is_child; children--)
            if ((wait(&status) < 0 || status != 0) && !is_child) {
                fprintf(stderr, "a child's status is %#x\n", status);
                return 2;
            }
    }
    for (long at = 0; at < BYTES; at += PAGE)
        if (memory[at] != 1)
            _exit(3);
    if (file >= 0 && mapped[FILE_BYTES - 1] != 'x')
        _exit(6);
    if (is_child)
        _exit(0);
    fprintf(stderr, "%s: %ld steps\n", what, steps);
    return steps == 0;
}
