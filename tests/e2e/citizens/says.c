/* Needs more than budget and swap together, of which the agent tells the user, while descriptor 2 is no place for a word:
   with "data" it is a file of the program's, with "pipe" a full pipe that nobody empties. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { PAGE = 4096, DATA = 8192 };
static const long BYTES = 64L << 20;

/* Pages of noise: nothing packs them. */
static int need_memory(void)
{
    char *memory = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    unsigned long state = 1;
    for (long at = 0; at < BYTES; at += 8) {
        state ^= state << 13, state ^= state >> 7, state ^= state << 17;
        *(unsigned long *)(memory + at) = state;
    }
    usleep(100000);
    return 0;
}

static int into_data(const char *path)
{
    char bytes[DATA], seen[DATA + 1];
    for (int fd = 0; fd < 3; fd++)
        close(fd);
    open("/dev/null", O_RDONLY);
    open("/dev/null", O_WRONLY);
    if (open(path, O_RDWR | O_CREAT | O_TRUNC, 0600) != 2)
        return 2;
    memset(bytes, 'x', DATA);
    if (write(2, bytes, DATA) != DATA || need_memory())
        return 3;
    if (pread(2, seen, DATA + 1, 0) != DATA || memcmp(seen, bytes, DATA) != 0)
        return 4;
    return 0;
}

/* Whoever starts with the pipe has it for standard error. */
static int into_pipe(char *self)
{
    int ends[2];
    if (pipe(ends) != 0 || dup2(ends[1], 2) != 2)
        return 2;
    fcntl(2, F_SETFL, O_NONBLOCK);
    while (write(2, self, 1) == 1)
        ;
    fcntl(2, F_SETFL, 0);
    execl(self, self, "piped", NULL);
    return 3;
}

int main(int count, char **words)
{
    if (count > 2 && strcmp(words[1], "data") == 0)
        return into_data(words[2]);
    if (count > 1 && strcmp(words[1], "pipe") == 0)
        return into_pipe(words[0]);
    alarm(20);
    return need_memory();
}
