/* What a summary is to tell of. sums KIND [MIB [PLACE]]
   daemon: holds so much, and makes a daemon that reads it, whose parent ends.
   reader: holds so much, and forks a child that reads it. readers: three that read it three times.
   discards: three children that discard it and fill 30 MiB. left: three read it whose parent has ended.
   secret: of memfd_secret; 77: there is none. tables: GiB of which a page each 2 MiB is read.
   moves: loads a file of that size, which is PLACE, into shared memory, and lets go of what was read.
   last-shares, last-locks: holds shared or locked memory in a thread that goes on after the first one.
   alone: goes into a group of processes at PLACE that may have MIB of them, and becomes `plain 80`.
   bare: becomes `plain MIB` by the bare instruction, with no environment. plain: holds so much. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* The launcher has looked by then. */
#define WHILE 500000

static unsigned long mixed(unsigned long number) {
    number = (number ^ number >> 30) * 0xbf58476d1ce4e5b9;
    return (number ^ number >> 27) * 0x94d049bb133111eb;
}

static void fill(char *memory, size_t bytes) {
    for (size_t at = 0; at < bytes; at += 8)
        *(unsigned long *)(memory + at) = mixed(at + 1);
}

static int is_right(const char *memory, size_t bytes) {
    for (size_t at = 0; at < bytes; at += 8)
        if (*(const unsigned long *)(memory + at) != mixed(at + 1))
            return 0;
    return 1;
}

static char *mapped(size_t bytes, int flags) {
    char *memory = mmap(0, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);
    if (memory == MAP_FAILED)
        exit(3);
    return memory;
}

/* The first thread has ended. */
static size_t last_bytes;

static void *last(void *flags) {
    usleep(WHILE / 5);
    char *memory = mmap(0, last_bytes, PROT_READ | PROT_WRITE, (long)flags, -1, 0);
    if (memory == MAP_FAILED)
        exit(3);
    fill(memory, last_bytes);
    usleep(2 * WHILE);
    exit(!is_right(memory, last_bytes));
}

/* So that the sum of files and shared memory stays as it is. */
static int moves(size_t bytes, const char *place) {
    const size_t piece = 256 << 10;
    int file = open(place, O_RDWR);
    char *from = mmap(0, bytes, PROT_READ, MAP_PRIVATE, file, 0);
    char *to = mmap(0, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (from == MAP_FAILED || to == MAP_FAILED)
        return 3;
    for (size_t at = 0; at < bytes; at += 4096)
        (void)*(volatile char *)(from + at);
    usleep(WHILE / 5);
    for (size_t at = 0; at < bytes; at += piece) {
        memcpy(to + at, from + at, piece);
        munmap(from + at, piece);
        if (at % (8 << 20) == 0)
            usleep(10000);
    }
    usleep(2 * WHILE);
    for (size_t at = 0; at < bytes; at++)
        if (to[at] != 7)
            return 1;
    return 0;
}

/* What a child of three does: it reads what it has inherited twice, and discards it or not. */
static int heir(char *memory, size_t bytes, int discards) {
    for (int turn = 0; turn < 2; turn++)
        if (!is_right(memory, bytes))
            return 1;
    if (discards) {
        madvise(memory, bytes, MADV_DONTNEED);
        fill(memory, 30 << 20);
    }
    usleep(WHILE);
    return !is_right(memory, discards ? 30 << 20 : bytes);
}

/* Who makes them ends where they are `left`, and whoever began waits for them all. */
static int heirs(size_t bytes, int left) {
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    int result = 0, status;
    if (!left || !fork()) {
        char *memory = mapped(bytes, 0);
        fill(memory, bytes);
        for (int number = 0; number < 3; number++)
            if (!fork())
                _exit(heir(memory, bytes, !left));
        if (left)
            _exit(0);
    }
    while (wait(&status) > 0)
        result |= status;
    return result != 0;
}

static void put(const char *place, const char *name, const char *text) {
    char path[512];
    snprintf(path, sizeof path, "%s/%s", place, name);
    int file = open(path, O_WRONLY);
    if (file < 0 || write(file, text, strlen(text)) < 0)
        exit(5);
    close(file);
}

int main(int count, char **words) {
    if (count < 3)
        return 2;
    size_t number = atoi(words[2]), bytes = number << 20;
    const char *kind = words[1];
    if (!strcmp(kind, "alone") && count > 3) {
        put(words[3], "pids.max", words[2]);
        put(words[3], "cgroup.procs", "0");
        execl(words[0], words[0], "plain", "80", NULL);
        return 6;
    }
    if (!strcmp(kind, "discards") || !strcmp(kind, "left"))
        return heirs(bytes, kind[0] == 'l');
    if (!strcmp(kind, "moves") && count > 3)
        return moves(bytes, words[3]);
    if (!strncmp(kind, "last-", 5)) {
        long flags = MAP_ANONYMOUS | (kind[5] == 's' ? MAP_SHARED : MAP_PRIVATE | MAP_LOCKED);
        pthread_t thread;
        last_bytes = bytes;
        if (pthread_create(&thread, 0, last, (void *)flags))
            return 3;
        pthread_exit(0);
    }
    if (!strcmp(kind, "bare")) {
        char *arguments[] = {words[0], "plain", words[2], NULL}, *none[] = {NULL};
        long result;
        __asm__ volatile("syscall" : "=a"(result)
                         : "a"(SYS_execve), "D"(words[0]), "S"(arguments), "d"(none)
                         : "rcx", "r11", "memory");
        return 6;
    }
    if (!strcmp(kind, "secret")) {
        int file = syscall(447, 0);
        if (file < 0)
            return 77;
        if (ftruncate(file, bytes))
            return 3;
        char *memory = mmap(0, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
        if (memory == MAP_FAILED)
            return 3;
        fill(memory, bytes);
        usleep(WHILE);
        return !is_right(memory, bytes);
    }
    if (!strcmp(kind, "tables")) {
        char *memory = mapped(number << 30, MAP_NORESERVE);
        madvise(memory, number << 30, MADV_NOHUGEPAGE);
        for (size_t at = 0; at < number << 30; at += 2 << 20)
            (void)*(volatile char *)(memory + at);
        usleep(WHILE);
        return 0;
    }
    char *memory = mapped(bytes, 0);
    fill(memory, bytes);
    if (!strcmp(kind, "daemon")) {
        int tells[2];
        if (pipe(tells))
            return 3;
        if (fork()) {
            char word = 1;
            close(tells[1]);
            while (read(tells[0], &word, 1) > 0)
                ;
            return word;
        }
        if (fork())
            _exit(0);
        char word = !is_right(memory, bytes);
        usleep(WHILE);
        return write(tells[1], &word, 1) != 1;
    }
    if (!strcmp(kind, "reader")) {
        int status;
        if (!fork())
            _exit(!is_right(memory, bytes));
        wait(&status);
        return status != 0;
    }
    if (!strcmp(kind, "readers")) {
        int result = 0;
        for (int child = 0; child < 3; child++)
            if (!fork())
                _exit(!is_right(memory, bytes) || !is_right(memory, bytes) || !is_right(memory, bytes));
        for (int status; wait(&status) > 0;)
            result |= status != 0;
        return result;
    }
    usleep(WHILE);
    return !is_right(memory, bytes);
}
