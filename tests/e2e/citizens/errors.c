/* Writes memory that is cold to its standard output again and again, which is the file or pipe of its standard error,
   too, while another thread needs more than budget and swap together, of which the agent tells the user. */
#define _GNU_SOURCE
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { PAGE = 4096, PIECE = 1 << 20 };
static const long COLD = 16L << 20, BYTES = 96L << 20;
static char *cold;
static volatile int is_done;

/* Pages of noise: nothing packs them. */
static char *noise(long bytes)
{
    char *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    unsigned long state = 1;
    for (long at = 0; at < bytes; at += 8) {
        state ^= state << 13, state ^= state >> 7, state ^= state << 17;
        *(unsigned long *)(memory + at) = state;
    }
    return memory;
}

static void *writes(void *unused)
{
    while (!is_done) {
        for (long at = 0; at < COLD && !is_done; at += PIECE)
            if (write(1, cold + at, PIECE) < 0)
                _exit(3);
        lseek(1, 0, SEEK_SET);
    }
    return unused;
}

int main(void)
{
    pthread_t writer;
    alarm(30);
    if (dup2(2, 1) != 1)
        return 2;
    cold = noise(COLD);
    char *bytes = mmap(NULL, COLD, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memcpy(bytes, cold, COLD);
    pthread_create(&writer, NULL, writes, NULL);
    char *more = noise(BYTES), *again = noise(BYTES / 2);
    int is_same = memcmp(more, again, BYTES / 2) == 0 && memcmp(bytes, cold, COLD) == 0;
    is_done = 1;
    pthread_join(writer, NULL);
    if (ftruncate(1, 0) == 0)
        lseek(1, 0, SEEK_SET);
    return is_same ? 0 : 4;
}
