/* Fills memory, looks at every page of it again, says so. worker MIB [LAPS [last-thread]] */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static size_t bytes;
static int laps = 1;

static unsigned long expected(size_t at, int lap) { return at * 2654435761u + (unsigned long)lap; }

static void *work(void *is_last) {
    if (is_last)
        usleep(100000); /* the first thread has ended by then */
    unsigned char *memory = mmap(0, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        _exit(3);
    for (int lap = 0; lap < laps; lap++) {
        for (size_t at = 0; at < bytes; at += 4096)
            *(unsigned long *)(memory + at) = expected(at, lap);
        for (size_t at = 0; at < bytes; at += 4096)
            if (*(unsigned long *)(memory + at) != expected(at, lap))
                _exit(1);
    }
    if (write(1, "right\n", 6) != 6)
        _exit(4);
    _exit(0);
}

int main(int count, char **words) {
    bytes = (size_t)atoi(words[1]) << 20;
    if (count > 2)
        laps = atoi(words[2]);
    if (count < 4)
        work(0);
    pthread_t thread;
    pthread_create(&thread, 0, work, &laps);
    pthread_exit(0);
}
