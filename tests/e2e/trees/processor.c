/* Sets a limit of three seconds of processor time, and has a pager take more than that; then takes them itself.
 * Says what the limit is told to be, and after how many hundredths of a second of its own the signal came. */
#define _GNU_SOURCE
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static volatile int signals;
static void count(int signal) { (void)signal; signals++; }

static long hundredths(clockid_t clock) {
    struct timespec time;
    clock_gettime(clock, &time);
    return time.tv_sec * 100 + time.tv_nsec / 10000000;
}

/* With an argument: what the limit is told to be in what is started in four ways, and by a shell that a fifth
 * one starts. */
static void starts(void) {
    char *words[] = {"sh", "-c", "ulimit -Ht; ulimit -St", 0};
    pid_t pid;
    int status;
    fflush(stdout);
    if (posix_spawn(&pid, "/bin/sh", 0, 0, words, environ) || waitpid(pid, &status, 0) != pid) exit(2);
    pid = vfork();
    if (!pid) {
        execv("/bin/sh", words);
        _exit(2);
    }
    waitpid(pid, &status, 0);
    pid = fork();
    if (!pid) {
        execv("/bin/sh", words);
        _exit(2);
    }
    waitpid(pid, &status, 0);
    if (system("ulimit -Ht; ulimit -St; sh -c 'ulimit -Ht; ulimit -St'")) exit(2);
}

/* With "beside": what the limit is told to be here after a child of vfork has set its own. */
static void beside(void) {
    struct rlimit childs = {30, 50}, own;
    int status;
    pid_t pid = vfork();
    if (!pid) {
        _exit(setrlimit(RLIMIT_CPU, &childs) != 0);
    }
    if (waitpid(pid, &status, 0) != pid || status || getrlimit(RLIMIT_CPU, &own)) exit(2);
    printf("%lu %lu\n", (unsigned long)own.rlim_cur, (unsigned long)own.rlim_max);
}

int main(int count_of_words, char **words) {
    const size_t len = 96ul << 20;
    struct rlimit limit = {3, count_of_words > 1 ? 1000 : RLIM_INFINITY};
    if (setrlimit(RLIMIT_CPU, &limit)) return 2;
    unsigned char *memory = mmap(0, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return 2;
    for (size_t at = 0; at < len; at++) memory[at] = (unsigned char)rand();
    /* No handler as yet: the first signal ends the program. */
    while (hundredths(CLOCK_PROCESS_CPUTIME_ID) < 450 && hundredths(CLOCK_THREAD_CPUTIME_ID) < 250)
        for (int n = 0; n < 100; n++) memory[((size_t)rand() << 8) % len]++;
    long all = hundredths(CLOCK_PROCESS_CPUTIME_ID);
    if (getrlimit(RLIMIT_CPU, &limit)) return 2;
    signal(SIGXCPU, count);
    if (count_of_words > 1) {
        printf("%ld\n", all);
        if (strcmp(words[1], "beside")) starts();
        else beside();
        return 0;
    }
    while (!signals && hundredths(CLOCK_THREAD_CPUTIME_ID) < 800) {}
    printf("%ld %lu %ld\n", all, (unsigned long)limit.rlim_cur, hundredths(CLOCK_THREAD_CPUTIME_ID));
    return 0;
}
