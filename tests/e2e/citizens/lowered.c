// What a program does that lowers its limit on descriptors when its memory is managed: to the first
// argument, the hard one, too, if the second is `hard`. With a third it forks; if that is `exit` the
// child ends by exit(2).
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { MIB = 1 << 20, PAGE = 4096 };

static unsigned char *fill(unsigned char *memory, size_t len) {
    for (size_t at = 0; at < len; at += PAGE) {
        unsigned long word = at * 0x9e3779b97f4a7c15u + 1;
        for (size_t part = 0; part < PAGE; part += sizeof word, word = word * 6364136223846793005u + 1)
            memcpy(memory + at + part, &word, sizeof word);
    }
    return memory;
}

static unsigned char *made(size_t len) {
    void *memory = mmap(0, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) _exit(3);
    return fill(memory, len);
}

static int differ(const unsigned char *memory, size_t len) {
    for (size_t at = 0; at < len; at += PAGE) {
        unsigned long word;
        memcpy(&word, memory + at, sizeof word);
        if (word != at * 0x9e3779b97f4a7c15u + 1) return 1;
    }
    return 0;
}

static pthread_mutex_t *lock;
static volatile int step;

static void *owner(void *unused) {
    pthread_mutex_lock(lock);
    for (step = 1; step != 2;) usleep(1000);
    return unused;
}

// The page of a lock goes out, and its owner ends: whoever asks next is told.
static int lost_owner(unsigned char *memory, unsigned char *more, size_t len) {
    pthread_mutexattr_t robust;
    pthread_mutexattr_init(&robust);
    pthread_mutexattr_setrobust(&robust, PTHREAD_MUTEX_ROBUST);
    lock = (pthread_mutex_t *)(memory + MIB + 128);
    pthread_mutex_init(lock, &robust);
    pthread_t thread;
    pthread_create(&thread, 0, owner, 0);
    while (step != 1) usleep(1000);
    for (int round = 0; round < 3; round++) fill(more, len);
    step = 2;
    pthread_join(thread, 0);
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += 5;
    return pthread_mutex_timedlock(lock, &until) != EOWNERDEAD;
}

int main(int count, char **words) {
    size_t len = 64 * (size_t)MIB;
    unsigned char *memory = made(len), *before = made(len);
    struct rlimit limit;
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = atoi(words[1]);
    if (!strcmp(words[2], "hard")) limit.rlim_max = limit.rlim_cur;
    if (setrlimit(RLIMIT_NOFILE, &limit)) return 4;
    unsigned char *after = made(2 * len);
    if (differ(memory, len) || differ(before, len) || differ(after, 2 * len)) return 5;
    if (lost_owner(before, after, 2 * len)) return 6;
    pid_t child = count > 3 ? fork() : 0;
    if (count > 3 && !child) {
        unsigned char *own = made(len);
        int wrong = differ(memory, len) || differ(after, 2 * len) || differ(own, len);
        if (!strcmp(words[3], "exit")) syscall(SYS_exit, wrong);
        _exit(wrong);
    }
    int status;
    if (child && (waitpid(child, &status, 0) != child || status)) return 7;
    getrlimit(RLIMIT_NOFILE, &limit);
    return limit.rlim_cur == (rlim_t)atoi(words[1]) ? 0 : 8;
}
