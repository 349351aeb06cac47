/* "small": mremap in a thread with the smallest stack. Else handlers of a signal leave many calls by siglongjmp. "remap":
   of mremap; says how many milliseconds it took to map and fill some blocks before that and after it. "populate": of
   what populates a little; all of it fits. */
#define _GNU_SOURCE
#include <limits.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

enum { BLOCKS = 40 };
static const size_t BYTES = 64ul << 20, BLOCK = 4ul << 20, PART = 65536, FRESH = 2ul << 20;
static char *scratch;
static sigjmp_buf back;
static volatile int is_armed, jumps;

static void leave(int signal)
{
    (void)signal;
    if (is_armed) {
        is_armed = 0;
        siglongjmp(back, 1);
    }
}

static size_t *filled(size_t bytes, size_t seed)
{
    size_t *words = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (size_t at = 0; at < bytes / sizeof(size_t); at++)
        words[at] = (at + seed) * 0x9E3779B97F4A7C15;
    return words;
}

static int is_right(const size_t *words, size_t bytes, size_t seed)
{
    for (size_t at = 0; at < bytes / sizeof(size_t); at++)
        if (words[at] != (at + seed) * 0x9E3779B97F4A7C15)
            return 0;
    return 1;
}

static void move_there_and_back(void)
{
    mremap(scratch, PART, PART, MREMAP_MAYMOVE | MREMAP_FIXED, scratch + BYTES / 2);
    mremap(scratch + BYTES / 2, PART, PART, MREMAP_MAYMOVE | MREMAP_FIXED, scratch);
}

static void populate(void)
{
    madvise(scratch, FRESH, MADV_POPULATE_WRITE);
    madvise(scratch, FRESH, MADV_DONTNEED);
}

static void *in_small_thread(void *nothing)
{
    for (int round = 0; round < 10; round++)
        move_there_and_back();
    return nothing;
}

static int in_small(void)
{
    pthread_attr_t small;
    pthread_t thread;
    pthread_attr_init(&small);
    return pthread_attr_setstacksize(&small, PTHREAD_STACK_MIN) || pthread_create(&thread, &small, in_small_thread, NULL) ||
           pthread_join(thread, NULL);
}

static void jump_out_of(void (*call)(void), int times)
{
    struct sigaction action = { .sa_handler = leave, .sa_flags = SA_NODEFER };
    struct itimerval often = { { 0, 3000 }, { 0, 3000 } }, never = { { 0, 0 }, { 0, 0 } };
    sigaction(SIGALRM, &action, NULL);
    setitimer(ITIMER_REAL, &often, NULL);
    while (jumps < times) {
        if (sigsetjmp(back, 1) == 0) {
            is_armed = 1;
            for (;;)
                call();
        }
        jumps++;
    }
    setitimer(ITIMER_REAL, &never, NULL);
}

/* Negative: what was filled is not there. */
static long time_of_blocks(void)
{
    struct timespec began, ended;
    size_t *blocks[BLOCKS];
    clock_gettime(CLOCK_MONOTONIC, &began);
    for (size_t at = 0; at < BLOCKS; at++)
        blocks[at] = filled(BLOCK, at);
    clock_gettime(CLOCK_MONOTONIC, &ended);
    for (size_t at = 0; at < BLOCKS; at++)
        if (!is_right(blocks[at], BLOCK, at) || munmap(blocks[at], BLOCK) != 0)
            return -1;
    return (ended.tv_sec - began.tv_sec) * 1000 + (ended.tv_nsec - began.tv_nsec) / 1000000;
}

int main(int count, char **words)
{
    if (count < 2)
        return 2;
    scratch = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (strcmp(words[1], "populate") == 0) {
        jump_out_of(populate, 100);
        return 0;
    }
    size_t *memory = filled(BYTES, 1);
    memset(scratch, 1, PART);
    if (strcmp(words[1], "small") == 0)
        return in_small() || !is_right(memory, BYTES, 1);
    long before = time_of_blocks();
    int free_before = dup(1);
    close(free_before);
    jump_out_of(move_there_and_back, 20);
    long after = time_of_blocks();
    printf("%ld %ld\n", before, after);
    return before < 0 || after < 0 || !is_right(memory, BYTES, 1) || dup(1) != free_before;
}
