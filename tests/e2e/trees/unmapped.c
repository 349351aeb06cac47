/* Has so many MiB of shared memory in a way that maps next to nothing of it, for a second: allocated ahead,
   filled in pieces, written to a file on tmpfs, or in a segment. With FILE it has that open, too.
   unmapped allocated|pieces|file|segment MIB [FILE] */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <unistd.h>

#define PIECE (4 << 20)

static int fill(int file, size_t bytes) {
    for (size_t at = 0; at < bytes; at += PIECE) {
        char *piece = mmap(0, PIECE, PROT_READ | PROT_WRITE, MAP_SHARED, file, at);
        if (piece == MAP_FAILED)
            return 1;
        memset(piece, 1, PIECE);
        munmap(piece, PIECE);
    }
    return 0;
}

int main(int count, char **words) {
    if (count < 3)
        return 2;
    const char *way = words[1];
    size_t bytes = (size_t)atoi(words[2]) << 20;
    if (count > 3 && open(words[3], O_RDONLY) < 0)
        return 8;
    if (!strcmp(way, "segment")) {
        int segment = shmget(IPC_PRIVATE, bytes, IPC_CREAT | 0600);
        char *memory = shmat(segment, 0, 0);
        if (memory == (char *)-1)
            return 3;
        memset(memory, 1, bytes);
        shmdt(memory);
        sleep(1);
        return shmctl(segment, IPC_RMID, 0) ? 4 : 0;
    }
    int is_file = !strcmp(way, "file");
    int file = is_file ? open("/dev/shm", O_TMPFILE | O_RDWR, 0600) : memfd_create("unmapped", 0);
    if (file < 0 || ftruncate(file, bytes))
        return 5;
    if (!strcmp(way, "allocated") && fallocate(file, 0, 0, bytes))
        return 6;
    if (strcmp(way, "allocated") && fill(file, bytes))
        return 7;
    sleep(1);
    return 0;
}
