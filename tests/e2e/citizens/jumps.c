/* "small": mremap in a thread with the smallest stack. Else handlers of a signal leave many calls by siglongjmp. "remap":
   of mremap; says how many milliseconds it took to map and fill some blocks before that and after it. "populate": of
   what populates a little; all of it fits. "grow FILE": of mremap that makes a mapping longer to which was stored. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
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

/* The file's bytes: each of its parts by its number. Some pages of a mapping have 99. */
static int is_of_file(const char *mapping, size_t bytes)
{
    for (size_t at = 0; at < bytes; at += PART)
        if (mapping[at] != (char)(at / PART) || mapping[at + 4096] != (at < BLOCK ? 99 : (char)(at / PART)))
            return 0;
    return 1;
}

static int in_maps(void)
{
    char text[4096];
    int lines = 0, maps = open("/proc/self/maps", O_RDONLY);
    for (ssize_t got; (got = read(maps, text, sizeof text)) > 0;)
        while (got > 0)
            lines += text[--got] == '\n';
    close(maps);
    return lines;
}

/* Moves a mapping of a file to `scratch`, longer, with a handler that leaves the call after some microseconds. It has
   moved as a whole then, or not at all. */
static int grow(int file, int ends[2], int microseconds)
{
    static char *volatile mapping;
    static volatile int is_moved;
    const size_t before = 3 * BLOCK, after = 4 * BLOCK;
    struct itimerval once = { { 0, 0 }, { 0, microseconds } }, never = { { 0, 0 }, { 0, 0 } };
    if (mmap(scratch, after, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != scratch)
        return 1;
    mapping = mmap(NULL, before, PROT_READ | PROT_WRITE, MAP_PRIVATE, file, 0);
    for (size_t at = 0; at < BLOCK; at += PART)
        mapping[at + 4096] = 99;
    is_moved = 0;
    if (sigsetjmp(back, 1) == 0) {
        is_armed = 1;
        setitimer(ITIMER_REAL, &once, NULL);
        is_moved = mremap(mapping, before, after, MREMAP_MAYMOVE | MREMAP_FIXED, scratch) == scratch;
    } else {
        jumps++;
    }
    is_armed = 0;
    setitimer(ITIMER_REAL, &never, NULL);
    int is_there = write(ends[1], scratch, 1) == 1;
    char *now = is_there ? scratch : mapping;
    return is_moved > is_there || !is_of_file(now, is_there ? after : before) || munmap(now, is_there ? after : before);
}

static int grow_often(const char *path)
{
    int ends[2], file = open(path, O_RDONLY);
    struct sigaction action = { .sa_handler = leave, .sa_flags = SA_NODEFER };
    sigaction(SIGALRM, &action, NULL);
    if (file < 0 || pipe(ends) != 0 || grow(file, ends, 900000))
        return 1;
    int free_before = dup(1), lines = in_maps();
    close(free_before);
    for (int round = 0; round < 300; round++)
        if (grow(file, ends, 1 + round * 40))
            return 2;
    printf("%d jumps, %d and %d mappings\n", jumps, lines, in_maps());
    return in_maps() > lines + 20 ? 3 : dup(1) != free_before ? 4 : 0;
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
    if (strcmp(words[1], "grow") == 0)
        return grow_often(words[2]);
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
